"""Finds and runs what the stack needs of this machine: Java and the jars, Docker, processes, ports and locks."""
