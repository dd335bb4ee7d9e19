"""What is seen of a build: every view is made from the stream of events alone, live or from the file afterwards."""
