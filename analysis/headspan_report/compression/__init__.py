"""The page about compressed caches: plans and how well they do."""
