"""What a release carries beside its code: hashes of all that an image installs, and a bill of materials."""
