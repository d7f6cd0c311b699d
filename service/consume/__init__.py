"""Sessions fed from Redis Streams: `horocycle consume`."""
