"""The verbs: one file each, named as the verb."""
