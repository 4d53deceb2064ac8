// Reads pack files with the library's readers, for tests of hostile bytes: "dispatch FILE" or "container FILE", one answer line each.
// "accepted ..." with what was read, or "refused OFFSET REASON".
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "container.h"
#include "dispatch.h"

namespace {

using namespace aotforge;

void answer(const Refusal& refusal) { std::cout << "refused " << refusal.offset << ' ' << refusal.reason << std::endl; }

void read_dispatch(std::vector<uint8_t> bytes) {
  Dispatch dispatch;
  dispatch.bytes = std::move(bytes);
  if (const Refusal refusal = parse_dispatch(dispatch)) return answer(refusal);
  std::cout << "accepted";
  for (const Operator& op : dispatch.operators) {
    char hex[65];
    to_hex(op.interface_hash().data(), 32, hex);
    std::cout << ' ' << op.name << '=' << hex;
  }
  for (const Kernel& kernel : dispatch.kernels) std::cout << ' ' << kernel.name << ':' << kernel.functionals.size();
  std::cout << " slots:" << dispatch.slots.size() << " choices:" << dispatch.choices.size() << std::endl;
}

void read_container(const std::vector<uint8_t>& bytes) {
  const MemorySource source(bytes.data(), bytes.size());
  Images images;
  if (const Refusal refusal = images.open(source, nullptr)) return answer(refusal);
  std::string digests;
  for (uint32_t i = 0; i < images.count(); ++i) {
    std::vector<uint8_t> image;
    if (const Refusal refusal = images.decode(source, i, image)) return answer(refusal);
    char hex[65];
    to_hex(sha256(image.data(), image.size()).data(), 32, hex);
    digests += std::string(" ") + hex;
  }
  std::cout << "accepted" << digests << std::endl;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    std::ifstream file(line.substr(space + 1), std::ios::binary);
    std::vector<uint8_t> bytes{std::istreambuf_iterator<char>(file), {}};
    if (line.substr(0, space) == "portable") Sha256::use_instructions(false);
    if (line.substr(0, space) == "dispatch") read_dispatch(std::move(bytes));
    else read_container(bytes);
  }
}
