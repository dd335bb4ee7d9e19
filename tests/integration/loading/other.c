/* A library of another package: opening it is all that it does. */
int other = 1;
