#include "attention.h"
#include "log.h"

namespace aotforge {
namespace {

// A caller's buffer: acquired at most once, disposed of exactly when it was acquired, also when something throws.
template <int Rank>
class Borrowed : public Lazy {
 public:
  Borrowed(Lender<Rank>* lender, const Problem& problem) : problem_(problem), lender_(lender) {}
  ~Borrowed() override {
    if (acquired_) lender_->dispose();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;

 protected:
  bool given() const { return lender_ != nullptr && lender_->given(); }
  TensorView<Rank> acquire() {
    const TensorView<Rank> tensor = lender_->acquire();
    acquired_ = true;
    return tensor;
  }
  const Problem& problem_;

 private:
  Lender<Rank>* lender_;
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
    const RowStrides rows = check_rows(verdict, "D", tensor, problem_);
    cells[Bwd::D].p = tensor.data_ptr();
    put_rows(verdict, cells + Bwd::stride_dz, rows);
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
    check4(verdict, "DQ_ACC", tensor, p.planes_q, p.heads_q, p.rows_q, p.head_dim, aotriton::kFloat32);
    check_output(verdict, "DQ_ACC", tensor);
    cells[Bwd::DQ_ACC].p = tensor.data_ptr();
    put_strides(verdict, cells + Bwd::stride_dqaz, tensor, 3);
    return verdict.report("attn_bwd");
  }
};

RowStrides check_tensors(Verdict& verdict, Required& required, const Backward& call, const Problem& p) {
  check4(verdict, "Out", call.Out, p.planes_q, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check4(verdict, "DO", call.DO, p.planes_q, p.heads_q, p.rows_q, p.head_dim_v, p.dtype);
  check4(verdict, "DQ", call.DQ, p.planes_q, p.heads_q, p.rows_q, p.head_dim, p.dtype);
  check4(verdict, "DK", call.DK, p.planes_k, p.heads_k, p.rows_k, p.head_dim, p.dtype);
  check4(verdict, "DV", call.DV, p.planes_k, p.heads_k, p.rows_k, p.head_dim_v, p.dtype);
  check_output(verdict, "DQ", call.DQ);
  check_output(verdict, "DK", call.DK);
  check_output(verdict, "DV", call.DV);
  check_bias<Bwd>(verdict, required, call, p);
  if (call.DB) {
    if (!call.B) verdict.malformed("DB", "is given without B");
    check_shape(verdict, "DB", call.DB, p.planes_q, p.heads_q, p.rows_q, p.rows_k, p.dtype);
    if (call.DB.size(3) > 1 && call.DB.stride(3) != 1) required.add(Bwd::stride_dbn);
    required.add(Bwd::DB);
  }
  return check_rows(verdict, "L", call.L, p);
}

void put_tensors(Verdict& verdict, Cell* cells, const Backward& call, const RowStrides& rows) {
  cells[Bwd::Q].p = call.Q.data_ptr();
  cells[Bwd::K].p = call.K.data_ptr();
  cells[Bwd::V].p = call.V.data_ptr();
  cells[Bwd::B].p = call.B.data_ptr();
  cells[Bwd::Out].p = call.Out.data_ptr();
  cells[Bwd::DO].p = call.DO.data_ptr();
  cells[Bwd::DK].p = call.DK.data_ptr();
  cells[Bwd::DV].p = call.DV.data_ptr();
  cells[Bwd::DQ].p = call.DQ.data_ptr();
  cells[Bwd::DB].p = call.DB.data_ptr();
  cells[Bwd::L].p = call.L.data_ptr();
  put_strides(verdict, cells + Bwd::stride_qz, call.Q, 3);
  put_strides(verdict, cells + Bwd::stride_kz, call.K, 3);
  put_strides(verdict, cells + Bwd::stride_vz, call.V, 3);
  put_strides(verdict, cells + Bwd::stride_bz, call.B, 4);
  put_strides(verdict, cells + Bwd::stride_oz, call.Out, 3);
  put_strides(verdict, cells + Bwd::stride_doz, call.DO, 3);
  put_strides(verdict, cells + Bwd::stride_dkz, call.DK, 3);
  put_strides(verdict, cells + Bwd::stride_dvz, call.DV, 3);
  put_strides(verdict, cells + Bwd::stride_dqz, call.DQ, 3);
  put_strides(verdict, cells + Bwd::stride_dbz, call.DB, 4);
  put_rows(verdict, cells + Bwd::stride_lz, rows);
}

hipError_t check_and_serve(const Backward& call, hipStream_t stream) {
  Verdict verdict = call.verdict;
  Required required;
  Cell cells[Bwd::kCount] = {};
  const Problem p = measure(verdict, call);
  const RowStrides rows = check_tensors(verdict, required, call, p);
  check_dropout(verdict, call.philox);
  check_backend(verdict, call.backend);
  const Window window = resolve_window(verdict, call, p);
  put_tensors(verdict, cells, call, rows);
  put_common<Bwd>(cells, required, p, window, call);
  if (!call.served) verdict.uncovered("arguments", "there are no kernels for this entry point");
  if (!verdict.ok()) return verdict.report(call.function);
  return guarded([&](State& state) {
    LazyDelta delta(call.D, p);
    LazyAccumulator accumulator(call.DQ_ACC, p);
    Lazy* const lazies[] = {&delta, &accumulator};
    const Part part{Served::attn_bwd, cells, required, lazies, 2};
    return serve(state, &part, 1, stream);
  });
}

}  // namespace

hipError_t backward(const Backward& call, hipStream_t stream) { return announced(check_and_serve(call, stream)); }

}  // namespace aotforge
