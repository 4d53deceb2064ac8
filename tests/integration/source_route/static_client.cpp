// A program with the library in it, and a zstd of its own. Prints what check_gpu returns.
#include <aotriton/flash.h>
#include <aotriton/runtime.h>

#include <cstdio>

extern "C" unsigned ZSTD_versionNumber() { return 1; }
extern "C" unsigned long long ZSTD_decompressDCtx(void*, void*, unsigned long long, const void*, unsigned long long) { return 0; }

int main() {
  std::printf("%u %d\n", ZSTD_versionNumber(), static_cast<int>(aotriton::v2::flash::check_gpu(aotriton::Stream(nullptr))));
  return 0;
}
