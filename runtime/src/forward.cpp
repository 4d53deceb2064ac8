#include "attention.h"
#include "log.h"
#include "system.h"

namespace aotforge {
namespace {

RowStrides check_optional(Verdict& verdict, Required& required, const Forward& call, const Problem& p) {
  check_bias<Fwd>(verdict, required, call, p);
  if (call.alibi) verdict.uncovered("A", "there are no kernels with ALiBi slopes");
  // without L the caller does not need it, as in PyTorch's inference
  const bool wanted = call.L && call.L.size(0) != 0 && call.L.size(1) != 0;
  return wanted ? check_rows(verdict, "L", call.L, p) : RowStrides{};
}

// The dropout mask as an operator of its own: +0.5 where an element is kept, -0.5 where it is dropped.
void put_mask(Verdict& verdict, Cell* cells, Required& required, const char* name, const T4& r, const Philox& philox) {
  check4(verdict, name, r, r.size(0), r.size(1), r.size(2), r.size(3), r.dtype());
  check_output(verdict, name, r);
  for (int i = 0; i < 4; ++i)
    if (r.size(i) > INT32_MAX) verdict.uncovered(name, "a size is over 2^31 - 1");
  if (r.dtype() == aotriton::kUnknown) verdict.malformed(name, "has no dtype");
  cells[Mask::R].p = r.data_ptr();
  put_strides(verdict, cells + Mask::stride_rz, r, 4);
  cells[Mask::batch].u = r.size(0);
  cells[Mask::num_head_q].u = r.size(1);
  cells[Mask::seqlen_q].u = r.size(2);
  cells[Mask::seqlen_k].u = r.size(3);
  cells[Mask::dropout_p].f = philox.dropout_p;
  cells[Mask::philox_seed].p = philox.seed.data_ptr();
  cells[Mask::philox_offset1].p = philox.offset1.data_ptr();
  cells[Mask::philox_offset2].u = philox.offset2;
  cells[Mask::dtype].i = r.dtype();
  required.add(Mask::dtype);
}

void put_tensors(Verdict& verdict, Cell* cells, const Forward& call, const RowStrides& rows) {
  const bool dropout = call.philox.dropout_p > 0.0f;
  cells[Fwd::Q].p = call.Q.data_ptr();
  cells[Fwd::K].p = call.K.data_ptr();
  cells[Fwd::V].p = call.V.data_ptr();
  cells[Fwd::B].p = call.B.data_ptr();
  cells[Fwd::L].p = rows.m == 0 ? nullptr : call.L.data_ptr();
  cells[Fwd::Out].p = call.Out.data_ptr();
  put_strides(verdict, cells + Fwd::stride_qz, call.Q, 3);
  put_strides(verdict, cells + Fwd::stride_kz, call.K, 3);
  put_strides(verdict, cells + Fwd::stride_vz, call.V, 3);
  put_strides(verdict, cells + Fwd::stride_bz, call.B, 4);
  put_rows(verdict, cells + Fwd::stride_lz, rows);
  put_strides(verdict, cells + Fwd::stride_oz, call.Out, 3);
  cells[Fwd::philox_seed_output].p = dropout ? call.philox_seed_output.data_ptr() : nullptr;
  cells[Fwd::philox_offset_output].p = dropout ? call.philox_offset_output.data_ptr() : nullptr;
  cells[Fwd::persistent_atomic_counter].p = call.persistent_atomic_counter.data_ptr();
}

constexpr char kPartial[] = "AOTFORGE_PARTIAL_PACK";

// For programs that switch off what the pack lacks.
bool partial_packs_permitted() {
  char text[kShortVariable];
  short_variable(kPartial, text);
  return text[0] == '1' && text[1] == 0;
}

// Without dropout the seed is not to be read, and everything is kept.
Philox dropout_of(const Philox& philox) { return philox.dropout_p > 0.0f ? philox : Philox{}; }

hipError_t check_and_serve(const Forward& call, hipStream_t stream) {
  Verdict verdict = call.verdict;
  Required required;
  Cell cells[Fwd::kCount] = {};
  const Problem p = measure(verdict, call);
  check4(verdict, "Out", call.Out, p.planes_q, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check_output(verdict, "Out", call.Out);
  check_dropout(verdict, call.philox);
  check_backend(verdict, call.backend);
  const RowStrides rows = check_optional(verdict, required, call, p);
  const Window window = resolve_window(verdict, call, p);
  put_tensors(verdict, cells, call, rows);
  put_common<Fwd>(cells, required, p, window, call);
  Required mask_required;
  Cell mask_cells[Mask::kCount] = {};
  const T4& r = call.encoded_softmax;
  if (!is_empty(r)) {
    if (r.size(0) != p.batch || r.size(1) != p.heads_q) verdict.malformed("encoded_softmax", "sizes do not agree");
    put_mask(verdict, mask_cells, mask_required, "encoded_softmax", r, dropout_of(call.philox));
  }
  if (!verdict.ok()) return verdict.report(call.function);
  const Part parts[] = {{Served::attn_fwd, cells, required}, {Served::attn_dropout_mask, mask_cells, mask_required}};
  return guarded([&](State& state) { return serve(state, parts, is_empty(r) ? 1 : 2, stream); });
}

}  // namespace

hipError_t forward(const Forward& call, hipStream_t stream) { return announced(check_and_serve(call, stream)); }

hipError_t dropout_mask(const T4& r, const Philox& philox, hipStream_t stream) {
  Verdict verdict;
  Required required;
  Cell cells[Mask::kCount] = {};
  put_mask(verdict, cells, required, "r", r, philox);
  if (!(philox.dropout_p >= 0.0f && philox.dropout_p <= 1.0f)) verdict.malformed("dropout_p", "is not within 0 and 1");
  if (!verdict.ok()) return announced(verdict.report("debug_simulate_encoded_softmax"));
  return announced(guarded([&](State& state) {
    const Part part{Served::attn_dropout_mask, cells, required};
    return serve(state, &part, 1, stream);
  }));
}

namespace {

hipError_t check_pack(hipStream_t stream, const char* gate) {
  return guarded([&](State& state) {
    Device* device = nullptr;
    if (const hipError_t error = state.device(stream, &device); error != hipSuccess) return error;
    for (const auto which : {Served::attn_fwd, Served::attn_bwd}) {
      int index = -1;
      const hipError_t error = device->served(which, &index);
      // a pack without attention is none for these entry points; one without the backward pass serves inference
      if (error == hipErrorInvalidSource) return error;
      if (error != hipSuccess && which == Served::attn_fwd) return hipErrorNoBinaryForGpu;
    }
    if (device->dispatch().serves(gate, device->arch_index()) || partial_packs_permitted()) return hipSuccess;
    log(Level::warn, "check_gpu: the pack for %s does not serve all attention that PyTorch may request at API level %s; "
        "%s=1 permits its use", device->arch().c_str(), gate, kPartial);
    return hipErrorNotSupported;
  });
}

}  // namespace

hipError_t check_gpu(hipStream_t stream, const char* gate) {
  if (!log_is_brief()) return check_pack(stream, gate);
  // PyTorch asks once for each GPU and says nothing about the answer: its attention would only be slower
  std::string reason;
  hipError_t result = hipSuccess;
  {
    const LogCapture captured;
    result = check_pack(stream, gate);
    reason = captured.text();
  }
  if (result != hipSuccess && !reason.empty())
    log_advice(Level::warn, "./dev doctor looks at the installation, ./dev build --arch ARCH makes a pack for all calls that PyTorch makes",
               "PyTorch will not use this library on a GPU of this machine: %s", reason.c_str());
  return result;
}

}  // namespace aotforge
