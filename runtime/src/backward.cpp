#include "attention.h"
#include "log.h"

namespace aotforge {
namespace {

using Params = aotriton::v3::flash::attn_bwd_params;

// A caller's lazy tensor: acquired at most once, disposed of exactly when it was acquired, also when something throws.
template <int Rank>
class Borrowed : public Lazy {
 public:
  Borrowed(const aotriton::LazyTensor<Rank>& lazy, const Problem& problem) : problem_(problem), lazy_(lazy) {}
  ~Borrowed() override {
    if (acquired_ && lazy_.dispose != nullptr) lazy_.dispose(lazy_.cookie);
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 protected:
  bool given() const { return lazy_.acquire != nullptr; }
  TensorView<Rank> acquire() {
    const TensorView<Rank> tensor = lazy_.acquire(lazy_.cookie);
    acquired_ = true;
    return tensor;
  }
  const Problem& problem_;

 private:
  const aotriton::LazyTensor<Rank>& lazy_;
  bool acquired_ = false;
};

class LazyDelta final : public Borrowed<2> {
 public:
  using Borrowed::Borrowed;
  bool wanted(const ValueSet& used) const override { return used.test(Bwd::D) || used.test(Bwd::stride_dz) || used.test(Bwd::stride_dh); }
  hipError_t fill(Cell* cells) override {
    Verdict verdict;
    if (!given()) {
      verdict.malformed("D", "is needed and not given");
      return verdict.report("attn_bwd");
    }
    const T2 tensor = acquire();
    check_rows(verdict, "D", tensor, problem_);
    cells[Bwd::D].p = tensor.data_ptr();
    put_rows(verdict, cells + Bwd::stride_dz, tensor, problem_.heads_q);
    return verdict.report("attn_bwd");
  }
};

class LazyAccumulator final : public Borrowed<4> {
 public:
  using Borrowed::Borrowed;
  bool wanted(const ValueSet& used) const override {
    return used.test(Bwd::DQ_ACC) || used.test(Bwd::stride_dqaz) || used.test(Bwd::stride_dqah) || used.test(Bwd::stride_dqam);
  }
  hipError_t fill(Cell* cells) override {
    Verdict verdict;
    if (!given()) {
      verdict.uncovered("DQ_ACC", "is needed and not given");
      return verdict.report("attn_bwd");
    }
    const T4 tensor = acquire();
    const Problem& p = problem_;
    check4(verdict, "DQ_ACC", tensor, p.planes, p.heads_q, p.rows_q, p.head_dim, aotriton::kFloat32);
    check_output(verdict, "DQ_ACC", tensor);
    cells[Bwd::DQ_ACC].p = tensor.data_ptr();
    put_strides(verdict, cells + Bwd::stride_dqaz, tensor, 3);
    return verdict.report("attn_bwd");
  }
};

void check_gradients(Verdict& verdict, Required& required, const Params& in, const Problem& p) {
  check4(verdict, "Out", in.Out, p.planes, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check4(verdict, "DO", in.DO, p.planes, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check4(verdict, "DQ", in.DQ, p.planes, p.heads_q, p.rows_q, p.head_dim, p.dtype);
  check4(verdict, "DK", in.DK, p.planes, p.heads_k, p.rows_k, p.head_dim, p.dtype);
  check4(verdict, "DV", in.DV, p.planes, p.heads_k, p.rows_k, p.head_dim_v, p.dtype);
  check_output(verdict, "DQ", in.DQ);
  check_output(verdict, "DK", in.DK);
  check_output(verdict, "DV", in.DV);
  check_rows(verdict, "L", in.L, p);
  check_bias<Bwd>(verdict, required, in.B, p);
  if (in.DB) {
    if (!in.B) verdict.malformed("DB", "is given without B");
    check_shape(verdict, "DB", in.DB, p.planes, p.heads_q, p.rows_q, p.rows_k, p.dtype);
    if (in.DB.size(3) > 1 && in.DB.stride(3) != 1) required.add(Bwd::stride_dbn);
    required.add(Bwd::DB);
  }
}

void put_tensors(Verdict& verdict, Cell* cells, const Params& in) {
  cells[Bwd::Q].p = in.Q.data_ptr();
  cells[Bwd::K].p = in.K.data_ptr();
  cells[Bwd::V].p = in.V.data_ptr();
  cells[Bwd::B].p = in.B.data_ptr();
  cells[Bwd::Out].p = in.Out.data_ptr();
  cells[Bwd::DO].p = in.DO.data_ptr();
  cells[Bwd::DK].p = in.DK.data_ptr();
  cells[Bwd::DV].p = in.DV.data_ptr();
  cells[Bwd::DQ].p = in.DQ.data_ptr();
  cells[Bwd::DB].p = in.DB.data_ptr();
  cells[Bwd::L].p = in.L.data_ptr();
  put_strides(verdict, cells + Bwd::stride_qz, in.Q, 3);
  put_strides(verdict, cells + Bwd::stride_kz, in.K, 3);
  put_strides(verdict, cells + Bwd::stride_vz, in.V, 3);
  put_strides(verdict, cells + Bwd::stride_bz, in.B, 4);
  put_strides(verdict, cells + Bwd::stride_oz, in.Out, 3);
  put_strides(verdict, cells + Bwd::stride_doz, in.DO, 3);
  put_strides(verdict, cells + Bwd::stride_dkz, in.DK, 3);
  put_strides(verdict, cells + Bwd::stride_dvz, in.DV, 3);
  put_strides(verdict, cells + Bwd::stride_dqz, in.DQ, 3);
  put_strides(verdict, cells + Bwd::stride_dbz, in.DB, 4);
  put_rows(verdict, cells + Bwd::stride_lz, in.L, in.Q.size(1));
}

hipError_t check_and_serve(const Params& in, hipStream_t stream, const aotriton::v3::flash::attn_options* options,
                           const char* function, bool serve_it) {
  Verdict verdict;
  Required required;
  Cell cells[Bwd::kCount] = {};
  const Lengths lengths{in.cu_seqlens_q, in.cu_seqlens_k, in.Max_seqlen_q, in.Max_seqlen_k, in.varlen_type};
  const Philox philox{in.dropout_p, in.philox_seed_ptr, in.philox_offset1, in.philox_offset2};
  const Problem p = measure(verdict, in.Q, in.K, in.V, lengths);
  check_gradients(verdict, required, in, p);
  check_dropout(verdict, philox);
  check_options(verdict, options);
  const Window window = resolve_window(verdict, in.causal_type, in.window_left, in.window_right, p);
  put_tensors(verdict, cells, in);
  put_common<Bwd>(verdict, cells, required, p, window, philox, in.Sm_scale, lengths, static_cast<bool>(in.B));
  if (!serve_it) verdict.uncovered("arguments", "there are no kernels for this entry point");
  if (!verdict.ok()) return verdict.report(function);
  return guarded([&](State& state) {
    LazyDelta delta(in.D, p);
    LazyAccumulator accumulator(in.DQ_ACC, p);
    Lazy* const lazies[] = {&delta, &accumulator};
    return serve(state, Served::attn_bwd, cells, required, lazies, 2, stream);
  });
}

}  // namespace

hipError_t backward(const Params& in, hipStream_t stream, const aotriton::v3::flash::attn_options* options,
                    const char* function, bool serve_it) {
  return announced(check_and_serve(in, stream, options, function, serve_it));
}

}  // namespace aotforge
