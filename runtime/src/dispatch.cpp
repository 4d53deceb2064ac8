#include "dispatch.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>

namespace aotforge {

const char kOtherFormat[] = "format version is not 1";

namespace {

constexpr uint8_t kDispatchMagic[8] = {'A', 'O', 'T', 'F', 'D', 'S', 'P', '\n'};
constexpr const char* kTypeNames[kTypeCount] = {"ptr", "i32", "i64", "u64", "f32"};

bool is_integer(Type type) { return type == Type::i32 || type == Type::i64 || type == Type::u64; }

bool is_file_name(std::string_view name) {
  if (name.empty() || name.size() > 64 || name[0] == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

// `have` bytes of the file are at `header`: all of it, or more than a header.
Refusal check_header(const uint8_t* header, size_t have, uint64_t file_size) {
  if (have < kDispatchHeader) return {"truncated", have};
  if (std::memcmp(header, kDispatchMagic, sizeof kDispatchMagic) != 0) return {"magic is not that of dispatch data", 0};
  if (const uint32_t format = load_u32(header + 8); format != kFormat) return {kOtherFormat, 8, format};
  if (load_u32(header + 12) != kDispatchHeader) return {"header size is not 64", 12};
  if (load_u64(header + 16) != file_size) return {"file size differs from the header's", 16};
  if (file_size > kDispatchMax) return {"larger than 4 MiB", 16};
  if (load_u64(header + 24) != 0) return {"reserved field is not zero", 24};
  return {};
}

class Parser {
 public:
  explicit Parser(Dispatch& out) : out_(out), in_(out.bytes.data(), out.bytes.size(), kDispatchHeader) {}

  Refusal run() {
    archs(in_, out_.archs);
    containers();
    operators();
    kernels();
    gates();
    in_.require(in_.at_end(), "bytes after the end");
    if (in_.ok()) assign_slots();
    return in_.refusal();
  }

  static void archs(Reader& in, std::vector<std::string_view>& out) {
    const uint32_t n = in.count(in.u16(), 1, 64, 2, "arch count out of bounds");
    out.reserve(n);
    for (uint32_t i = 0; i < n && in.ok(); ++i) {
      const std::string_view name = in.str();
      in.require(i == 0 || out.back() < name, "archs are not sorted or not unique");
      out.push_back(name);
    }
  }

 private:
  void containers() {
    const uint32_t n = in_.count(in_.u16(), 1, 1024, 34, "container count out of bounds");
    out_.containers.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      Container container{in_.str(), {}};
      in_.require(is_file_name(container.file), "container name is not a file name of a pack");
      in_.require(i == 0 || out_.containers.back().file < container.file, "containers are not sorted or not unique");
      if (const uint8_t* id = in_.bytes(32)) std::copy(id, id + 32, container.id.begin());
      out_.containers.push_back(container);
    }
  }

  void operators() {
    const uint32_t n = in_.count(in_.u16(), 1, 256, 7, "operator count out of bounds");
    out_.operators.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      Operator op;
      op.name = in_.str();
      in_.require(i == 0 || out_.operators.back().name < op.name, "operators are not sorted or not unique");
      values(op);
      out_.operators.push_back(std::move(op));
    }
  }

  void values(Operator& op) {
    const uint32_t n = in_.count(in_.u16(), 1, kMaxValues, 3, "value count out of bounds");
    op.values.reserve(n);
    std::vector<std::string_view> names;
    names.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      const std::string_view name = in_.str();
      op.values.push_back({name, type()});
      names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    in_.require(std::adjacent_find(names.begin(), names.end()) == names.end(), "two values have one name");
  }

  Type type() {
    const uint8_t t = in_.u8();
    in_.require(t < kTypeCount, "unknown type");
    return static_cast<Type>(t < kTypeCount ? t : 0);
  }

  void kernels() {
    const uint32_t n = in_.count(in_.u16(), 1, 1024, 16, "kernel count out of bounds");
    out_.kernels.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      out_.kernels.emplace_back();
      kernel(out_.kernels.back(), i);
    }
  }

  void gates() {
    const uint32_t n = in_.count(in_.u16(), 0, 1024, 4, "gate count out of bounds");
    out_.gates.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      const Gate gate{in_.str(), in_.u16()};
      in_.require(gate.arch < out_.archs.size(), "arch index out of bounds");
      const auto key = [](const Gate& g) { return std::tie(g.name, g.arch); };
      in_.require(i == 0 || key(out_.gates.back()) < key(gate), "gates are not sorted or not unique");
      out_.gates.push_back(gate);
    }
  }

  void kernel(Kernel& k, uint32_t index) {
    k.name = in_.str();
    k.operator_index = in_.u16();
    k.step = in_.u8();
    k.container = in_.u16();
    if (!in_.require(k.operator_index < out_.operators.size(), "operator index out of bounds")) return;
    if (!in_.require(k.container < out_.containers.size(), "container index out of bounds")) return;
    Operator& op = out_.operators[k.operator_index];
    const bool ordered = index == 0 || out_.kernels[index - 1].operator_index <= k.operator_index;
    if (!in_.require(ordered && k.step == op.kernel_count, "kernels are not sorted by operator and step")) return;
    if (op.kernel_count++ == 0) op.first_kernel = index;
    keys(k, op);
    parameters(k, op);
    functionals(k, op);
    op.consulted |= k.uses;
  }

  void keys(Kernel& k, const Operator& op) {
    const uint32_t n = in_.count(in_.u8(), 0, 32, 2, "key count out of bounds");
    k.keys.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
      const uint16_t at = value(k, op);
      if (!in_.ok() || !in_.require(is_integer(op.values[at].type), "key is not an integer")) return;
      k.keys.push_back(at);
    }
    const uint8_t ladder = in_.u8();
    in_.require(ladder <= (n > 0 ? 1 : 0), "ladder flag out of bounds");
    k.ladder = ladder == 1;
  }

  void parameters(Kernel& k, const Operator& op) {
    const uint32_t n = in_.count(in_.u16(), 0, 256, 3, "parameter count out of bounds");
    k.parameters.reserve(n);
    for (uint32_t i = 0; i < n; ++i) {
      const Type to = type();
      const uint16_t at = value(k, op);
      if (!in_.ok()) return;
      const Type from = op.values[at].type;
      if (!in_.require(from == to || (is_integer(from) && is_integer(to)), "parameter and value types do not convert")) return;
      k.parameters.push_back({at, from, to});
    }
    k.null_pointers = in_.u8();
    in_.require(k.null_pointers <= 8, "null pointer count out of bounds");
  }

  void functionals(Kernel& k, const Operator& op) {
    predicate_lists(k, op);
    const size_t least = 2 + 8 * k.keys.size() + 2 + 17;
    const uint32_t n = in_.count(in_.u32(), 0, UINT32_MAX, least, "functional count out of bounds");
    k.functionals.reserve(n);
    k.key_values.reserve(n * k.keys.size());
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      Functional f{in_.u16(), 0, static_cast<uint32_t>(out_.choices.size())};
      in_.require(f.arch < out_.archs.size(), "arch index out of bounds");
      for (size_t j = 0; j < k.keys.size(); ++j) k.key_values.push_back(in_.i64());
      in_.require(i == 0 || follows(k, i, f.arch), "functionals are not sorted or not unique");
      f.choice_count = static_cast<uint16_t>(in_.count(in_.u16(), 1, 256, 17, "choice count out of bounds"));
      for (uint32_t j = 0; j < f.choice_count && in_.ok(); ++j) choice(k, op);
      k.functionals.push_back(f);
    }
  }

  // Whether functional i (its key already appended) comes strictly after functional i - 1.
  static bool follows(const Kernel& k, size_t i, uint16_t arch) {
    const auto width = static_cast<std::ptrdiff_t>(k.keys.size());
    const auto end = k.key_values.end(), start = end - width, before = start - width;
    const uint16_t last = k.functionals[i - 1].arch;
    return last != arch ? last < arch : std::lexicographical_compare(before, start, start, end);
  }

  void choice(Kernel& k, const Operator& op) {
    Choice c{};
    c.image = in_.u32();
    c.symbol = in_.str();
    c.shared_bytes = in_.u32();
    c.threads = in_.u16();
    in_.require(c.shared_bytes <= 256 * 1024, "shared memory over 256 KiB");
    in_.require(c.threads >= 1 && c.threads <= 1024, "threads per workgroup out of bounds");
    const uint16_t at = in_.u16();
    if (!in_.require(at < lists_.size(), "predicate list index out of bounds")) return;
    c.predicate_count = lists_[at].count;
    c.first_predicate = lists_[at].first;
    c.first_term = static_cast<uint32_t>(out_.terms.size());
    uint32_t terms = 0;
    for (uint8_t& count : c.term_counts) {
      count = in_.u8();
      in_.require(count <= 4, "more than four terms on a grid axis");
      terms += count;
    }
    for (uint32_t i = 0; i < terms && in_.ok(); ++i) term(k, op);
    out_.choices.push_back(c);
  }

  // Of the kernel's choices, many of which have the same one: without these lists predicates were most of a complete pack's dispatch data.
  void predicate_lists(Kernel& k, const Operator& op) {
    const uint32_t n = in_.count(in_.u16(), 0, UINT16_MAX, 1, "predicate list count out of bounds");
    lists_.clear();
    lists_.reserve(n);
    for (uint32_t i = 0; i < n && in_.ok(); ++i) {
      lists_.push_back({static_cast<uint32_t>(out_.predicates.size()), in_.u8()});
      for (uint32_t j = 0; j < lists_.back().count && in_.ok(); ++j) predicate(k, op);
    }
  }

  void predicate(Kernel& k, const Operator& op) {
    const uint8_t kind = in_.u8();
    Predicate p{};
    p.count = static_cast<uint8_t>(in_.count(in_.u8(), 1, kMaxFactors, 2, "predicate's value count out of bounds"));
    bool has_pointer = false;
    for (uint8_t i = 0; i < p.count; ++i) {
      p.values[i] = value(k, op);
      if (!in_.ok()) return;
      const Type t = op.values[p.values[i]].type;
      if (!in_.require(t != Type::f32, "predicate on a float")) return;
      has_pointer |= t == Type::ptr;
      if (t == Type::ptr || t == Type::u64) p.unsigned_mask |= static_cast<uint8_t>(1u << i);
    }
    p.low = in_.i64();
    p.high = in_.i64();
    if (!in_.ok() || !in_.require(kind <= 1, "unknown predicate")) return;
    if (!in_.require(!has_pointer || (kind == 0 && p.count == 1), "range or product of a pointer")) return;
    if (kind == 0 && !in_.require(is_divisor(p), "predicate bounds")) return;
    p.test = kind == 1 ? range_test(p) : multiple_test(p);
    if (p.test == Test::multiple_of_power) --p.low;
    out_.predicates.push_back(p);
  }

  // Products are reduced modulo the divisor in 64 bits, so theirs has 32.
  static bool is_divisor(const Predicate& p) {
    return p.low >= 1 && p.high == 0 && (p.count == 1 || p.low <= static_cast<int64_t>(UINT32_MAX));
  }

  static Test range_test(const Predicate& p) {
    if (p.count > 1) return Test::product_range;
    return p.unsigned_mask != 0 ? Test::range_unsigned : Test::range;
  }

  static Test multiple_test(const Predicate& p) {
    if (p.count > 1) return Test::product_multiple;
    if ((p.low & (p.low - 1)) == 0) return Test::multiple_of_power;
    return p.unsigned_mask != 0 ? Test::multiple_unsigned : Test::multiple;
  }

  void term(Kernel& k, const Operator& op) {
    const uint16_t at = value(k, op);
    const uint32_t divisor = in_.u32();
    if (!in_.ok() || !in_.require(divisor >= 1, "divisor is zero")) return;
    if (!in_.require(is_integer(op.values[at].type), "grid term is not an integer")) return;
    out_.terms.push_back({at, op.values[at].type, divisor});
  }

  uint16_t value(Kernel& k, const Operator& op) {
    const uint16_t at = in_.u16();
    if (!in_.require(at < op.values.size(), "value index out of bounds")) return 0;
    k.uses.set(at);
    return at;
  }

  void assign_slots() {
    struct Use {
      Slot slot;
      uint32_t choice;
      auto key() const { return std::tie(slot.container, slot.image, slot.symbol); }
    };
    std::vector<Use> uses;
    uses.reserve(out_.choices.size());
    for (const Kernel& k : out_.kernels)
      for (const Functional& f : k.functionals)
        for (uint32_t i = f.first_choice; i < f.first_choice + f.choice_count; ++i)
          uses.push_back({{k.container, out_.choices[i].image, out_.choices[i].symbol}, i});
    std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.key() < b.key(); });
    for (size_t i = 0; i < uses.size(); ++i) {
      if (i == 0 || uses[i - 1].key() != uses[i].key()) out_.slots.push_back(uses[i].slot);
      out_.choices[uses[i].choice].slot = static_cast<uint32_t>(out_.slots.size() - 1);
    }
  }

  // The first of a list's predicates in `out_`, and their number.
  struct Predicates {
    uint32_t first;
    uint8_t count;
  };

  Dispatch& out_;
  Reader in_;
  std::vector<Predicates> lists_;  // of the present kernel
};

template <typename Sequence, typename Name>
int find_sorted(const Sequence& items, std::string_view wanted, Name name) {
  const auto at = std::lower_bound(items.begin(), items.end(), wanted,
                                   [&](const auto& item, std::string_view w) { return name(item) < w; });
  return at != items.end() && name(*at) == wanted ? static_cast<int>(at - items.begin()) : -1;
}

}  // namespace

Digest Operator::interface_hash() const {
  std::string text(name);
  char separator = '(';
  for (const Value& v : values) {
    text += separator;
    text += v.name;
    text += ':';
    text += kTypeNames[static_cast<unsigned>(v.type)];
    separator = ',';
  }
  text += ')';
  return sha256(text.data(), text.size());
}

int Dispatch::find_operator(std::string_view name) const {
  return find_sorted(operators, name, [](const Operator& op) { return op.name; });
}

bool Dispatch::serves(std::string_view gate, uint16_t arch) const {
  return std::any_of(gates.begin(), gates.end(), [&](const Gate& g) { return g.name == gate && g.arch == arch; });
}

int Dispatch::find_arch(std::string_view name) const {
  return find_sorted(archs, name, [](std::string_view arch) { return arch; });
}

Refusal parse_dispatch(Dispatch& out) {
  const std::vector<uint8_t>& bytes = out.bytes;
  if (const Refusal refusal = check_header(bytes.data(), bytes.size(), bytes.size())) return refusal;
  const Digest digest = sha256(bytes.data() + kDispatchHeader, bytes.size() - kDispatchHeader);
  if (std::memcmp(digest.data(), bytes.data() + 32, 32) != 0) return {"SHA-256 of the body differs", 32};
  return Parser(out).run();
}

Refusal peek_archs(const std::vector<uint8_t>& head, uint64_t file_size, std::vector<std::string_view>& archs) {
  if (const Refusal refusal = check_header(head.data(), head.size(), file_size)) return refusal;
  Reader in(head.data(), head.size(), kDispatchHeader);
  Parser::archs(in, archs);
  return in.refusal();
}

}  // namespace aotforge
