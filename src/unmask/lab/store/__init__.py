"""Where a study's tables live: schemas, shards, hashes."""
