"""What everything stands on: errors, programs, locks, whole files, secrets, and text and paths that others wrote."""
