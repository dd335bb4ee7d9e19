extern "C" const char* dependency_where();
int main() { return dependency_where() == nullptr; }
