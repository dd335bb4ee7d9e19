int both(int value);

int thrice(int value) { return both(value); }
