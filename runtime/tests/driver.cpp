// Runs public calls of the library as requested by lines on stdin, with one answer line each, so that tests describe calls as data.
//   fwd|bwd|aiter|v2fwd|v2varfwd|v2bwd|v2fused|v2varbwd|softmax FIELD=VALUE...   ->  "rc N"
//   `unset`: the params object is garbage but for what the line gives; `older` (level 0.14): an object of versions 3 and 6
//   tensors: base:size,size,..:stride,..:dtype (decimal), LAZY fields the same; numbers as they are; stream=N (made by `stream`)
//   check|arch|cus|experimental|preview [stream=N]                    ->  "rc N" or the value
//   launch NAME VALUE=TYPE:NUMBER... [stream=N]               ->  "rc N" of aotforge_launch (TYPE: ptr, i32, i64, u64, f32)
//   replace PATH | open                                       ->  "rc N": descriptors of containers that are now PATH's; those still open
//   lasterror                                                 ->  hipGetLastError of this thread
//   hip PATH | chdir PATH | descriptors N | device N | stream N | fail SPEC | clear | calls NAME | record | setenv NAME VALUE | events
//   later SECONDS                                             ->  the process' clocks are ahead from now on (not on Windows)
#include <aotforge/launch.h>
#include <hip/hip_runtime.h>
#include <aotriton/flash.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <new>
#include <sstream>
#include <string>
#include <vector>

#include "system.h"
#if AOTRITON_VERSION_MINOR >= 14
#include "../src/api_older.h"
#endif

namespace {

using namespace aotriton;
using Fields = std::map<std::string, std::string>;

void* g_hip = nullptr;
std::vector<hipStream_t> g_streams;
std::string g_events;  // what happened to lazy tensors

template <typename Signature>
Signature* hip(const char* name) {
  if (g_hip == nullptr)
    for (const char* file : kHipNames)
      if (g_hip == nullptr) g_hip = loaded_library(file);
  void* address = g_hip != nullptr ? symbol_address(g_hip, name) : nullptr;
  if (address == nullptr) {
    std::cout << "missing " << name << std::endl;
    std::exit(3);
  }
  return reinterpret_cast<Signature*>(address);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

template <int Rank>
TensorView<Rank> tensor(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return {};
  const auto parts = split(found->second, ':');
  const auto sizes = split(parts.at(1), ','), strides = split(parts.at(2), ',');
  std::array<uint64_t, Rank> size{}, stride{};
  for (size_t i = 0; i < Rank; ++i) {
    size[i] = std::stoull(sizes.at(i));
    stride[i] = std::stoull(strides.at(i));
  }
  const auto dtype = static_cast<DType>(std::stoi(parts.at(3)));
  return {static_cast<intptr_t>(std::stoull(parts.at(0))), size, stride, dtype};
}

TensorView<0> scalar(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  if (found == fields.end()) return {};
  const auto dtype = fields.find("seed_dtype");
  return {static_cast<intptr_t>(std::stoull(found->second)),
          dtype == fields.end() ? kUInt64 : static_cast<DType>(std::stoi(dtype->second))};
}

int64_t number(const Fields& fields, const char* name, int64_t otherwise = 0) {
  const auto found = fields.find(name);
  return found == fields.end() ? otherwise : std::stoll(found->second);
}

float real(const Fields& fields, const char* name) {
  const auto found = fields.find(name);
  return found == fields.end() ? 0.0f : std::stof(found->second);
}

Stream stream_of(const Fields& fields) {
  const int64_t at = number(fields, "stream", -1);
  return Stream(at < 0 ? nullptr : g_streams.at(static_cast<size_t>(at)));
}

template <int Rank>
struct Cookie {
  TensorView<Rank> view;
  const char* name;
  bool throws;
};

struct Thrown {};

template <int Rank>
TensorView<Rank> make(void* cookie) {
  auto& made = *static_cast<Cookie<Rank>*>(cookie);
  g_events += std::string(" +") + made.name;
  if (made.throws) throw Thrown();
  return made.view;
}

template <int Rank>
void drop(void* cookie) {
  g_events += std::string(" -") + static_cast<Cookie<Rank>*>(cookie)->name;
}

template <int Rank>
LazyTensor<Rank> lazy(const Fields& fields, const char* name, Cookie<Rank>& cookie) {
  LazyTensor<Rank> made;
  if (fields.count(name) == 0) return made;
  cookie = {tensor<Rank>(fields, name), name, fields.count("throw") != 0};
  made.cookie = &cookie;
#if AOTRITON_VERSION_MINOR >= 12
  if (fields.count("eager") != 0) made.eager = cookie.view;
  made.acquire = [](LazyTensor<Rank>* self) { return make<Rank>(self->cookie); };
  made.dispose = [](LazyTensor<Rank>* self) { drop<Rank>(self->cookie); };
#else
  made.acquire = make<Rank>;
  made.dispose = drop<Rank>;
#endif
  return made;
}

// A params object as the headers of AOTriton leave it: fields are garbage, but for a null base and no dtype in tensors and for
// initialised members.
template <class Params>
class Object {
 public:
  explicit Object(const Fields& f) : unset_(f.count("unset") != 0) {
    if (!unset_) new (bytes_) Params;
    else std::memset(bytes_, 0xcd, sizeof bytes_);
  }
  Params& operator*() { return *std::launder(reinterpret_cast<Params*>(bytes_)); }

 private:
  bool unset_;
  alignas(16) unsigned char bytes_[sizeof(Params) + 64];  // what follows the object is garbage too
};

template <int Rank>
void set(TensorView<Rank>& field, const Fields& f, const char* name) {
  if (f.count(name) != 0 || f.count("unset") == 0) {
    if constexpr (Rank == 0) field = scalar(f, name); else field = tensor<Rank>(f, name);
    return;
  }
  auto* const bytes = reinterpret_cast<unsigned char*>(&field);
  std::memset(bytes, 0, 8);
  std::memset(bytes + 8 + 16 * Rank, 0, 4);
}

template <class Params>
void set_older_varlen(Params& p, const Fields& f) {
  set(p.cu_seqlens_q, f, "cu_seqlens_q");
  set(p.cu_seqlens_k, f, "cu_seqlens_k");
#if AOTRITON_VERSION_MINOR >= 12
  set(p.seq_strides_q, f, "seq_strides_q");
  set(p.seq_strides_k, f, "seq_strides_k");
#endif
  p.varlen_type = static_cast<int8_t>(number(f, "varlen_type"));
}

#if AOTRITON_VERSION_MINOR >= 14
void set_varlen(aotforge::older::attn_fwd_params& p, const Fields& f) { set_older_varlen(p, f); }
void set_varlen(aotforge::older::attn_bwd_params& p, const Fields& f) { set_older_varlen(p, f); }
#endif

template <class Params>
void set_varlen(Params& p, const Fields& f) {
#if AOTRITON_VERSION_MINOR >= 14
  set(p.seqinfo_q0, f, "cu_seqlens_q");
  set(p.seqinfo_k0, f, "cu_seqlens_k");
  set(p.seqinfo_q1, f, "seq_strides_q");
  set(p.seqinfo_k1, f, "seq_strides_k");
  const auto bits = static_cast<uint32_t>(number(f, "varlen_bits"));
  std::memcpy(static_cast<void*>(&p.varlen_bits), &bits, sizeof bits);
#else
  set_older_varlen(p, f);
#endif
}

template <class Params>
void common(Params& p, const Fields& f) {
  set(p.Q, f, "Q");
  set(p.K, f, "K");
  set(p.V, f, "V");
  set(p.B, f, "B");
  set(p.Out, f, "Out");
  set(p.L, f, "L");
  p.Sm_scale = real(f, "sm_scale");
  set_varlen(p, f);
  p.Max_seqlen_q = static_cast<int32_t>(number(f, "max_seqlen_q"));
  p.Max_seqlen_k = static_cast<int32_t>(number(f, "max_seqlen_k"));
  p.dropout_p = real(f, "dropout_p");
  set(p.philox_seed_ptr, f, "philox_seed");
  set(p.philox_offset1, f, "philox_offset1");
  p.philox_offset2 = static_cast<uint64_t>(number(f, "philox_offset2"));
  p.causal_type = static_cast<int8_t>(number(f, "causal_type"));
  if (f.count("unset") != 0 && p.causal_type == 0) return;
  p.window_left = static_cast<int32_t>(number(f, "window_left"));
  p.window_right = static_cast<int32_t>(number(f, "window_right"));
}

template <class Params>
int forward_as(const Fields& f) {
  Object<Params> object(f);
  Params& p = *object;
  common(p, f);
  set(p.A, f, "A");
  set(p.philox_seed_output, f, "philox_seed_output");
  set(p.philox_offset_output, f, "philox_offset_output");
  set(p.encoded_softmax, f, "encoded_softmax");
  set(p.persistent_atomic_counter, f, "persistent_atomic_counter");
  v3::flash::attn_options options;
  options.force_backend_index = static_cast<int>(number(f, "backend", -1));
  const auto version = static_cast<int32_t>(number(f, "version", Params::kVersion));
  return v3::flash::attn_fwd(reinterpret_cast<const v3::flash::attn_fwd_params&>(p), version, stream_of(f), &options);
}

template <class Params>
int backward_as(const Fields& f, bool aiter) {
  Object<Params> object(f);
  Params& p = *object;
  common(p, f);
  set(p.DO, f, "DO");
  set(p.DQ, f, "DQ");
  set(p.DK, f, "DK");
  set(p.DV, f, "DV");
  set(p.DB, f, "DB");
  Cookie<2> delta{};
  Cookie<4> accumulator{};
  new (&p.D) LazyTensor<2>(lazy<2>(f, "D", delta));
  new (&p.DQ_ACC) LazyTensor<4>(lazy<4>(f, "DQ_ACC", accumulator));
  const auto version = static_cast<int32_t>(number(f, "version", Params::kVersion));
  const auto& given = reinterpret_cast<const v3::flash::attn_bwd_params&>(p);
  try {
#if AOTRITON_VERSION_MINOR < 12
    if (aiter) return v3::flash::aiter_bwd(given, version, stream_of(f));
#endif
    v3::flash::attn_options options;
    options.force_backend_index = static_cast<int>(number(f, "backend", -1));
    return aiter ? -2 : v3::flash::attn_bwd(given, version, stream_of(f), f.count("backend") != 0 ? &options : nullptr);
  } catch (const Thrown&) {
    return -1;
  }
}

int forward(const Fields& f) {
#if AOTRITON_VERSION_MINOR >= 14
  if (f.count("older") != 0) return forward_as<aotforge::older::attn_fwd_params>(f);
#endif
  return forward_as<v3::flash::attn_fwd_params>(f);
}

int backward(const Fields& f, bool aiter) {
#if AOTRITON_VERSION_MINOR >= 14
  if (f.count("older") != 0) return backward_as<aotforge::older::attn_bwd_params>(f, aiter);
#endif
  return backward_as<v3::flash::attn_bwd_params>(f, aiter);
}

int version2(const std::string& call, const Fields& f) {
  const auto q = tensor<4>(f, "Q");
  const auto seed = scalar(f, "philox_seed"), offset = scalar(f, "philox_offset1");
  const float dropout = real(f, "dropout_p");
  const Stream stream = stream_of(f);
#if AOTRITON_VERSION_MINOR < 13
  const float scale = real(f, "sm_scale");
  const auto k = tensor<4>(f, "K"), v = tensor<4>(f, "V"), b = tensor<4>(f, "B"), out = tensor<4>(f, "Out");
  const auto lse = tensor<2>(f, "L");
  const bool causal = number(f, "is_causal") != 0;
  const auto cq = tensor<1>(f, "cu_seqlens_q"), ck = tensor<1>(f, "cu_seqlens_k");
  const auto mq = static_cast<int32_t>(number(f, "max_seqlen_q")), mk = static_cast<int32_t>(number(f, "max_seqlen_k"));
  if (call == "v2fwd")
    return v2::flash::attn_fwd(q, k, v, b, scale, lse, out, dropout, seed, offset, 0, {}, {}, {}, causal, {}, stream);
  if (call == "v2varfwd")
    return v2::flash::attn_fwd_compact_varlen(q, k, v, b, cq, ck, mq, mk, scale, lse, out, dropout, seed, offset, 0, {}, {}, {},
                                              causal, {}, stream);
  const auto dout = tensor<4>(f, "DO"), dq = tensor<4>(f, "DQ"), dk = tensor<4>(f, "DK"), dv = tensor<4>(f, "DV"), db = tensor<4>(f, "DB");
  const auto delta = tensor<2>(f, "D");
  if (call == "v2bwd")
    return v2::flash::attn_bwd(q, k, v, b, scale, out, dout, dq, dk, dv, db, lse, delta, dropout, seed, offset, 0, causal, stream);
  if (call == "v2fused")
    return v2::flash::attn_bwd_fused(q, k, v, b, scale, out, dout, dq, dk, dv, db, lse, dropout, seed, offset, 0, causal, stream);
  if (call == "v2varbwd")
    return v2::flash::attn_bwd_compact_varlen(q, k, v, cq, ck, mq, mk, b, scale, out, dout, dq, dk, dv, db, lse, delta, dropout, seed,
                                              offset, 0, causal, stream);
#endif
  if (call != "softmax") return -2;  // not at this API level
  return v2::flash::debug_simulate_encoded_softmax(q, dropout, seed, offset, 0, stream);
}

// Values in the line's order, so that mistakes (twice, unknown, of another type) can be sent too.
int launch_named(const std::vector<std::string>& words, hipStream_t stream) {
  static const char* const types[] = {"ptr", "i32", "i64", "u64", "f32"};
  std::vector<std::string> names;
  std::vector<aotforge_value> values;
  for (const std::string& word : words) {
    const size_t equals = word.find('='), colon = word.find(':');
    if (equals == std::string::npos || colon == std::string::npos) continue;
    const std::string type = word.substr(equals + 1, colon - equals - 1), text = word.substr(colon + 1);
    aotforge_value value = {};
    while (value.type < 4 && type != types[value.type]) ++value.type;
    switch (value.type) {
      case AOTFORGE_I32: value.as.i32 = static_cast<int32_t>(std::stoll(text)); break;
      case AOTFORGE_I64: value.as.i64 = std::stoll(text); break;
      case AOTFORGE_F32: value.as.f32 = std::stof(text); break;
      default: value.as.u64 = std::stoull(text); break;
    }
    names.push_back(word.substr(0, equals));
    values.push_back(value);
  }
  for (size_t i = 0; i < names.size(); ++i) values[i].name = names[i] == "(null)" ? nullptr : names[i].c_str();
  return aotforge_launch(words.at(0) == "(null)" ? nullptr : words.at(0).c_str(), values.data(), values.size(), AOTFORGE_HIP, stream);
}

void answer_record() {
  std::string text(hip<size_t(char*, size_t)>("hip_double_record")(nullptr, 0), 0);
  hip<size_t(char*, size_t)>("hip_double_record")(text.data(), text.size());
  std::cout << text.c_str() << "." << std::endl;
}

void set_up(const std::string& verb, const std::string& rest) {
  if (verb == "hip") {
    g_hip = open_library(rest);
    if (g_hip == nullptr) std::exit(3);
  } else if (verb == "chdir") {
    if (!change_folder(rest)) std::exit(3);
  } else if (verb == "device") {
    hip<int(int)>("hipSetDevice")(std::stoi(rest));
  } else if (verb == "stream") {
    g_streams.emplace_back();
    int before = 0;
    hip<int(int*)>("hipGetDevice")(&before);
    hip<int(int)>("hipSetDevice")(std::stoi(rest));
    hip<int(hipStream_t*)>("hipStreamCreate")(&g_streams.back());
    hip<int(int)>("hipSetDevice")(before);
  } else if (verb == "fail") {
    hip<void(const char*)>("hip_double_fail")(rest.c_str());
  } else if (verb == "descriptors") {
    limit_descriptors(std::stoul(rest));
  } else if (verb == "later") {
    advance_clock(std::stol(rest));
  } else if (verb == "clear") {
    hip<void()>("hip_double_clear")();
    g_events.clear();
  } else {
    const size_t space = rest.find(' ');
    set_variable(rest.substr(0, space), rest.substr(space + 1));
  }
  std::cout << "ok" << std::endl;
}

void query(const std::string& verb, const std::string& rest, const Fields& fields) {
  const Stream stream = stream_of(fields);
  if (verb == "check") std::cout << "rc " << v2::flash::check_gpu(stream) << std::endl;
  else if (verb == "arch") std::cout << std::hex << getGpuFromStream(stream.native()) << std::dec << std::endl;
  else if (verb == "cus") std::cout << getMultiProcessorCount(stream.native()) << std::endl;
  else if (verb == "experimental") std::cout << isArchExperimentallySupported(stream.native()) << std::endl;
#if AOTRITON_VERSION_MINOR >= 12
  else if (verb == "preview") std::cout << isArchTechPreview(stream.native()) << std::endl;
#endif
  else if (verb == "calls") std::cout << hip<long(const char*)>("hip_double_calls")(rest.c_str()) << std::endl;
  else if (verb == "lasterror") std::cout << hip<int()>("hipGetLastError")() << std::endl;
  else if (verb == "launch") std::cout << "rc " << launch_named(split(rest, ' '), stream.native()) << std::endl;
  else if (verb == "replace") std::cout << "rc " << replace_descriptors(rest) << std::endl;
  else if (verb == "open") std::cout << "rc " << open_descriptors() << std::endl;
  else if (verb == "events") std::cout << "events" << g_events << std::endl;
  else if (verb == "record") answer_record();
  else if (verb == "fwd") std::cout << "rc " << forward(fields) << std::endl;
  else if (verb == "bwd" || verb == "aiter") std::cout << "rc " << backward(fields, verb == "aiter") << std::endl;
  else if (verb == "softmax" || verb.rfind("v2", 0) == 0) std::cout << "rc " << version2(verb, fields) << std::endl;
  else std::cout << "unknown " << verb << std::endl;
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t space = line.find(' ');
    const std::string verb = line.substr(0, space), rest = space == std::string::npos ? "" : line.substr(space + 1);
    if (verb == "hip" || verb == "device" || verb == "chdir" || verb == "descriptors" || verb == "stream" || verb == "fail" || verb == "clear" || verb == "later" || verb == "setenv") {
      set_up(verb, rest);
      continue;
    }
    Fields fields;
    for (const std::string& word : split(rest, ' '))
      if (const size_t at = word.find('='); at != std::string::npos) fields[word.substr(0, at)] = word.substr(at + 1);
    query(verb, rest, fields);
  }
}
