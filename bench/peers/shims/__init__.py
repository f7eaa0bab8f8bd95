"""On the path of the peers' interpreters; nothing but one package lies here, so that no name of theirs is hidden."""
