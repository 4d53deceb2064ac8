// Just enough msgpack for kernel metadata: maps, arrays, strings, integers, booleans.
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace hip_double {

struct Node {
  enum Kind { nothing, number, text, list, table } kind = nothing;
  int64_t value = 0;
  std::string string;
  std::vector<Node> items;
  std::map<std::string, Node> members;

  const Node& at(const std::string& name) const {
    static const Node empty;
    const auto found = members.find(name);
    return found == members.end() ? empty : found->second;
  }
};

class Unpacker {
 public:
  Unpacker(const uint8_t* data, size_t size) : at_(data), end_(data + size) {}

  Node next(int depth = 0) {
    if (depth > 16) throw std::runtime_error("metadata is nested too deeply");
    const uint8_t tag = byte();
    if (tag < 0x80) return number(tag);
    if (tag >= 0xe0) return number(static_cast<int8_t>(tag));
    if (tag < 0x90) return table(tag & 15, depth);
    if (tag < 0xa0) return list(tag & 15, depth);
    if (tag < 0xc0) return text(tag & 31);
    switch (tag) {
      case 0xc0: return {};
      case 0xc2: case 0xc3: return number(tag & 1);
      case 0xcc: return number(static_cast<int64_t>(big(1)));
      case 0xcd: return number(static_cast<int64_t>(big(2)));
      case 0xce: return number(static_cast<int64_t>(big(4)));
      case 0xcf: return number(static_cast<int64_t>(big(8)));
      case 0xd0: return number(static_cast<int8_t>(big(1)));
      case 0xd1: return number(static_cast<int16_t>(big(2)));
      case 0xd2: return number(static_cast<int32_t>(big(4)));
      case 0xd3: return number(static_cast<int64_t>(big(8)));
      case 0xd9: return text(big(1));
      case 0xda: return text(big(2));
      case 0xdb: return text(big(4));
      case 0xdc: return list(big(2), depth);
      case 0xdd: return list(big(4), depth);
      case 0xde: return table(big(2), depth);
      case 0xdf: return table(big(4), depth);
      default: throw std::runtime_error("metadata has an unexpected tag");
    }
  }

 private:
  uint8_t byte() {
    if (at_ == end_) throw std::runtime_error("metadata is truncated");
    return *at_++;
  }
  uint64_t big(int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; ++i) value = value << 8 | byte();
    return value;
  }
  static Node number(int64_t value) {
    Node node;
    node.kind = Node::number;
    node.value = value;
    return node;
  }
  Node text(uint64_t size) {
    Node node;
    node.kind = Node::text;
    for (uint64_t i = 0; i < size; ++i) node.string += static_cast<char>(byte());
    return node;
  }
  Node list(uint64_t count, int depth) {
    Node node;
    node.kind = Node::list;
    for (uint64_t i = 0; i < count; ++i) node.items.push_back(next(depth + 1));
    return node;
  }
  Node table(uint64_t count, int depth) {
    Node node;
    node.kind = Node::table;
    for (uint64_t i = 0; i < count; ++i) {
      const Node key = next(depth + 1);
      if (key.kind != Node::text) throw std::runtime_error("metadata has a key that is not text");
      node.members[key.string] = next(depth + 1);
    }
    return node;
  }
  const uint8_t* at_;
  const uint8_t* end_;
};

}  // namespace hip_double
