"""Spark and its JVM: the session, Java classes, compiled Java, small files, and the meaning of Java exceptions."""
