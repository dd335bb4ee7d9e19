extern "C" const char* light_where();
int main() { return light_where() == nullptr; }
