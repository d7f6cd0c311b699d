"""The command `horocycle`. Imports nothing but the standard library, so that its doctor can say what is missing."""
