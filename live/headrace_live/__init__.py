"""The live page: what the services say of themselves, each second, as one picture in a browser."""
