"""headspan-harness: lm-evaluation-harness with headspan as its model. `headspan-harness --help` says how."""
