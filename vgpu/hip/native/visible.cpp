// Devices that a process sees, as ROCm: ROCR_VISIBLE_DEVICES chooses from all, HIP_VISIBLE_DEVICES from those, by number or UUID, in its order.
#include "visible.h"

#include <strings.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <numeric>
#include <sstream>

namespace virtual_hip {
namespace {

constexpr size_t kShortestUuid = 5;  // "GPU-" and a digit

using Numbers = std::vector<size_t>;

// The only device for which `fits`; `none` for no or several ones.
template <typename Fits>
size_t single(const std::vector<std::string>& uuids, Fits fits) {
  const auto first = std::find_if(uuids.begin(), uuids.end(), fits);
  if (first == uuids.end() || std::find_if(first + 1, uuids.end(), fits) != uuids.end()) return uuids.size();
  return static_cast<size_t>(first - uuids.begin());
}

// Without regard to case and blanks: the beginning of one UUID, or a number in C's notation.
size_t rocr_device(std::string entry, const std::vector<std::string>& uuids) {
  const auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  entry.erase(entry.begin(), std::find_if_not(entry.begin(), entry.end(), blank));
  entry.erase(std::find_if_not(entry.rbegin(), entry.rend(), blank).base(), entry.end());
  if (!entry.empty() && std::toupper(static_cast<unsigned char>(entry[0])) == 'G') {
    if (entry.size() < kShortestUuid) return uuids.size();
    return single(uuids, [&](const std::string& uuid) { return ::strncasecmp(uuid.c_str(), entry.c_str(), entry.size()) == 0; });
  }
  char* end = nullptr;
  const long number = std::strtol(entry.c_str(), &end, 0);
  return entry.empty() || *end != 0 || number < 0 ? uuids.size() : static_cast<size_t>(number);
}

// To the letter: a UUID or a decimal number.
size_t hip_device(const std::string& entry, const std::vector<std::string>& uuids) {
  if (entry.find("GPU-") != std::string::npos)
    return single(uuids, [&](const std::string& uuid) { return uuid.find(entry) != std::string::npos; });
  const long number = std::atol(entry.c_str());
  return number < 0 || entry != std::to_string(number) ? uuids.size() : static_cast<size_t>(number);
}

// The first entry that names no device ends the list; for ROCR also a device that the list has already.
template <typename Find>
Numbers chosen(const char* list, const std::vector<std::string>& uuids, bool repeats, Find find) {
  Numbers numbers;
  std::stringstream entries(list);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t number = find(entry, uuids);
    const bool known = std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    if (number >= uuids.size() || (known && !repeats)) break;
    if (!known) numbers.push_back(number);
  }
  return numbers;
}

}  // namespace

std::vector<size_t> visible_devices(const std::vector<std::string>& uuids) {
  Numbers numbers(uuids.size());
  std::iota(numbers.begin(), numbers.end(), size_t{0});
  if (const char* rocr = std::getenv("ROCR_VISIBLE_DEVICES")) numbers = chosen(rocr, uuids, false, rocr_device);
  for (const char* name : {"HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
    const char* list = std::getenv(name);
    if (list == nullptr || *list == 0) continue;
    std::vector<std::string> left;
    for (const size_t number : numbers) left.push_back(uuids[number]);
    Numbers of_those = chosen(list, left, true, hip_device);
    for (size_t& number : of_those) number = numbers[number];
    return of_those;
  }
  return numbers;
}

}  // namespace virtual_hip
