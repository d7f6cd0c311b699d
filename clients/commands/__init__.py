"""What `horocycle stream`, `fit`, `open` and `watch` do: programs above the SDK."""
