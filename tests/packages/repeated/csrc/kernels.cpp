int one(int value);
int two(int value);

int both(int value) { return one(two(value)); }
