// The little of Windows and of a C library that the client needs, declared here because neither Microsoft's headers nor its libraries
// can be had on Linux. Static objects with constructors work: the program runs them itself.
#pragma once

#include <stddef.h>
#include <stdint.h>

extern "C" {
__declspec(dllimport) void* GetStdHandle(unsigned long);
__declspec(dllimport) int WriteFile(void*, const void*, unsigned long, unsigned long*, void*);
__declspec(dllimport) void* GetModuleHandleA(const char*);
__declspec(dllimport) void* GetProcAddress(void*, const char*);
__declspec(dllimport) void ExitProcess(unsigned);

int _fltused = 0;  // the compiler requires it where there are floating-point numbers

#pragma function(memcpy, memset)
void* memcpy(void* to, const void* from, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
  return to;
}
void* memset(void* to, int value, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = static_cast<char>(value);
  return to;
}

void start();
}

// Constructors of static objects: the linker sorts their addresses between these two.
using Initializer = void (*)();
#pragma section(".CRT$XCA", read)
#pragma section(".CRT$XCZ", read)
__declspec(allocate(".CRT$XCA")) static const Initializer first_initializer = nullptr;
__declspec(allocate(".CRT$XCZ")) static const Initializer last_initializer = nullptr;
extern "C" void mainCRTStartup() {
  for (const volatile Initializer* at = &first_initializer; at < &last_initializer; ++at)
    if (const Initializer run = *at) run();
  start();
}

inline void write(const char* text, size_t size) {
  unsigned long written = 0;
  WriteFile(GetStdHandle(static_cast<unsigned long>(-11)), text, static_cast<unsigned long>(size), &written, nullptr);
}

inline size_t length(const char* text) {
  size_t size = 0;
  while (text[size] != 0) ++size;
  return size;
}

inline void print(const char* what, const char* text) {
  write(what, length(what));
  write(text, length(text));
  write("\n", 1);
}

inline void print(const char* what, int number) {
  char digits[12];
  char* at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = static_cast<char>('0' + number % 10);
  while ((number /= 10) != 0);
  print(what, at);
}

inline void print_record() {
  static char buffer[1 << 20];
  void* hip = GetModuleHandleA("amdhip64_7.dll");
  const auto record = reinterpret_cast<size_t (*)(char*, size_t)>(GetProcAddress(hip, "hip_double_record"));
  write(buffer, record(buffer, sizeof buffer) - 1);
}
