"""Items that could not be understood: listed, shown and exported, from the lake or from the topic."""
