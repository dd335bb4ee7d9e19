"""What everything uses: errors, programs, locks, whole files, secrets, and text and paths that others wrote."""
