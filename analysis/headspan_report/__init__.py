"""headspan-report: tables, figures and pages from the result files of headspan. `headspan-report --help` says how."""
