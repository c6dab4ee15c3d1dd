"""The store of segments: Kafka's log is the only arbiter, and all that is true follows from it.

Pure: what a record means depends on the records before it alone; on no clock, no setting and no replica.
"""
