"""The store of segments: Kafka's log is the only arbiter, and the state follows from it alone.

Pure: the meaning of a record depends only on the records before it, on no clock, no setting and no process.
"""
