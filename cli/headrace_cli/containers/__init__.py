"""Container images: how they are built, and what builders are told about package indexes."""
