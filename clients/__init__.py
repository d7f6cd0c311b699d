"""What talks to the service over HTTP. Nothing here imports it."""
