"""Small CMake projects, built by plain CMake and by this project, and compared."""
