"""From a folder of cases to training-ready patches: check → fingerprint → plan → preprocess → sample."""
