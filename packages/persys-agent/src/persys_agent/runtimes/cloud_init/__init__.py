"""The first-boot data of machines: what goes into a NoCloud seed, and the image that holds it."""
