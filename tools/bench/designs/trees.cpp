// EvoGP: trees as arrays of one length, interpreted from the last node to the first, all in one launch.
#include <algorithm>

#include <fmt/format.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>

#include "tools/bench/designs/baseline.h"
#include "tools/bench/designs/code.h"
#include "tools/bench/designs/device.h"

namespace srjit {
namespace {

/// Rows of one thread. (EvoGP: one.)
constexpr std::size_t kTreeStripRows = 4;
/// Up to here every integer is a float.
constexpr std::uint32_t kMostNumbers = std::uint32_t{1} << 24;

constexpr const char* kTreeDeclarations =
    R"( .local .align 4 .b8 stack[{}]; .reg .b32 %code, %number, %step; .reg .f32 %value, %errors;
 .reg .b64 %sp, %type, %node, %first, %types_end, %end, %step_bytes;
)";

constexpr const char* kTreeBegin =
    R"( mov.u32 %j, %ctaid.y; ld.param.u32 %i, [length]; mul.wide.u32 %a, %i, %j; ld.param.u64 %b, [sizes];
 mad.lo.u64 %b, %a, 2, %b; ld.global.nc.u16 %i, [%b]; ld.param.u64 %b, [values]; mad.lo.u64 %first, %a, 4, %b;
 mul.wide.u32 %c, %i, 4; add.u64 %end, %first, %c; ld.param.u64 %b, [types]; mad.lo.u64 %b, %a, 2, %b;
 mul.wide.u32 %c, %i, 2; add.u64 %types_end, %b, %c; mov.u32 %i, %nctaid.x; mov.u32 %j, %ntid.x;
 mul.lo.u32 %step, %i, %j; mul.wide.u32 %step_bytes, %step, 4; mov.f32 %errors, 0f00000000; @%beyond bra SUM;
ROW: mov.u64 %node, %end; mov.u64 %type, %types_end; mov.u64 %sp, stack;
NEXT: setp.ge.u64 %p, %first, %node; @%p bra DONE; add.u64 %node, %node, -4; add.u64 %type, %type, -2;
 ld.global.nc.u16 %code, [%type]; ld.global.nc.f32 %value, [%node]; cvt.rzi.u32.f32 %number, %value;
 setp.ge.u32 %p, %code, {0}; @%p add.u32 %code, %number, {0};
)";

constexpr const char* kTreeLeaves = R"(CASE_0: st.local.f32 [%sp], %value; add.u64 %sp, %sp, 4; bra NEXT;
CASE_1: cvt.u64.u32 %a, %number; mad.lo.u64 %a, %a, %pitch, %column; ld.global.nc.f32 %r, [%a];
 st.local.f32 [%sp], %r; add.u64 %sp, %sp, 4; bra NEXT;
CASE_2: ld.param.u64 %a, [parameters]; mul.wide.u32 %b, %number, 4; add.u64 %a, %a, %b;
 ld.global.nc.f32 %r, [%a]; st.local.f32 [%sp], %r; add.u64 %sp, %sp, 4; bra NEXT;
)";

constexpr const char* kTreeEnd =
    R"(DONE: ld.local.f32 %r, [stack]; ld.param.u64 %b, [out]; mul.wide.u32 %c, %row, 4; ld.param.u64 %a, [target];
 setp.eq.u64 %p, %a, 0; @%p bra STORE; add.u64 %a, %a, %c; ld.global.nc.f32 %t, [%a]; sub.rn.f32 %r, %r, %t;
 mul.rn.f32 %r, %r, %r; add.rn.f32 %errors, %errors, %r;
NEXT_ROW: add.u64 %column, %column, %step_bytes; add.u32 %row, %row, %step; setp.lt.u32 %p, %row, %rows;
 @%p bra ROW;
SUM: ld.param.u64 %a, [target]; setp.eq.u64 %p, %a, 0; @%p exit; ld.param.u64 %b, [out]; mov.u32 %ia, %ctaid.y;
 mov.f32 %r, %errors;
)";

constexpr const char* kTreeStore =
    R"(STORE: mov.u32 %i, %ctaid.y; cvt.u64.u32 %a, %i; mad.lo.u64 %a, %a, %pitch, %c; add.u64 %b, %b, %a;
 st.global.f32 [%b], %r; bra NEXT_ROW;
}
)";

/// Fills the rows of trees. Made anew for each thread.
class TreeWriter {
 public:
  explicit TreeWriter(TreeArrays& arrays) : arrays_(arrays) {}

  void write(const Expression& expression, std::size_t tree, std::uint32_t first_parameter) {
    const std::span<const Token> tokens = expression.tokens();
    const std::size_t begin = tree * arrays_.length;
    const std::vector<std::uint32_t> starts = subtreeStarts(tokens);
    std::size_t node = begin;
    pending_.assign(1, static_cast<std::uint32_t>(tokens.size() - 1));
    while (!pending_.empty()) {
      const std::uint32_t root = pending_.back();
      pending_.pop_back();
      put(node++, tokens[root], root + 1 - starts[root], first_parameter);
      const int arity = tokens[root].arity();
      if (arity > 0) pending_.push_back(root - 1);
      if (arity > 1) pending_.push_back(starts[root - 1] - 1);
    }
    checkHeight(begin, node);
    const std::size_t end = begin + arrays_.length;
    std::fill(arrays_.values.begin() + place(node), arrays_.values.begin() + place(end), 0.0F);
    std::fill(arrays_.types.begin() + place(node), arrays_.types.begin() + place(end), std::int16_t{0});
    std::fill(arrays_.sizes.begin() + place(node), arrays_.sizes.begin() + place(end), std::int16_t{0});
  }

 private:
  static std::ptrdiff_t place(std::size_t node) { return static_cast<std::ptrdiff_t>(node); }

  void put(std::size_t node, const Token& token, std::size_t size, std::uint32_t first_parameter) {
    arrays_.sizes[node] = static_cast<std::int16_t>(size);
    std::int16_t& type = arrays_.types[node];
    float& value = arrays_.values[node];
    switch (token.kind) {
      case Token::Kind::kConstant:
        type = TreeArrays::kConstant;
        value = static_cast<float>(token.value);
        return;
      case Token::Kind::kVariable:
        type = TreeArrays::kVariable;
        value = static_cast<float>(token.index);
        return;
      case Token::Kind::kParameter:
        type = TreeArrays::kParameter;
        value = static_cast<float>(first_parameter + token.index);
        return;
      case Token::Kind::kOp:
        break;
    }
    type = token.arity() == 1 ? TreeArrays::kUnary : TreeArrays::kBinary;
    value = static_cast<float>(baselineOpNumber(token.op));
  }

  // Not Expression::stackHeight(): from the last node on, the right operand comes first.
  void checkHeight(std::size_t begin, std::size_t end) const {
    std::size_t height = 0;
    for (std::size_t node = end; node > begin; --node) {
      const std::int16_t type = arrays_.types[node - 1];
      if (type == TreeArrays::kBinary) --height;
      if (type < TreeArrays::kUnary && ++height > kStackEntries) {
        failBench(Errc::kUnsupported,
                  fmt::format("a tree needs a stack of more than {} values, which is what the baseline's has",
                              kStackEntries));
      }
    }
  }

  TreeArrays& arrays_;
  std::vector<std::uint32_t> pending_;
};

class TreeBaseline final : public DeviceBaseline {
 public:
  TreeBaseline(std::shared_ptr<const Cuda> device, const BenchData& data)
      : DeviceBaseline(std::move(device), data), kernel_(load(imageOfPtx(treeKernelPtx()), kTreeKernel)) {}

 private:
  void build(std::span<const Expression> expressions) override {
    fillTreeArrays(expressions, arrays_);
    values_ = upload(arrays_.values);
    types_ = upload(arrays_.types);
    sizes_ = upload(arrays_.sizes);
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    CUdeviceptr all_columns = columns(), all_parameters = parameters(), values = 0, types = 0, sizes = 0, result = 0;
    std::uint32_t row_count = rows();
    auto length = static_cast<std::uint32_t>(arrays_.length);
    const auto arguments =
        addressesOf(all_columns, row_count, all_parameters, target, result, values, types, sizes, length);
    for (std::size_t done = 0; done < count; done += kMaxGridY) {
      const std::size_t node = (first + done) * arrays_.length;
      values = values_.address() + node * sizeof(float);
      types = types_.address() + node * sizeof(std::int16_t);
      sizes = sizes_.address() + node * sizeof(std::int16_t);
      result = out + done * resultBytes(target);
      run(kernel_, ceilDivide(rows(), kBaselineThreads * kTreeStripRows),
          std::min<std::size_t>(kMaxGridY, count - done), arguments);
    }
  }

  const Kernel kernel_;
  TreeArrays arrays_;
  DeviceBuffer values_, types_, sizes_;
};

}  // namespace

void fillTreeArrays(std::span<const Expression> expressions, TreeArrays& arrays) {
  const std::vector<std::uint32_t> offsets = parameterOffsets(expressions);
  if (offsets.back() > kMostNumbers)
    failBench(Errc::kUnsupported, fmt::format("{} parameters in one population", offsets.back()));
  arrays.length = 0;
  for (const Expression& expression : expressions) arrays.length = std::max(arrays.length, expression.size());
  if (arrays.length > kTreeNodes) failBench(Errc::kUnsupported, fmt::format("a tree of {} nodes", arrays.length));
  const std::size_t nodes = expressions.size() * arrays.length;
  arrays.values.resize(nodes);
  arrays.types.resize(nodes);
  arrays.sizes.resize(nodes);
  tbb::parallel_for(tbb::blocked_range(std::size_t{0}, expressions.size()), [&](const auto& range) {
    TreeWriter writer(arrays);
    for (std::size_t e = range.begin(); e < range.end(); ++e) writer.write(expressions[e], e, offsets[e]);
  });
}

std::string treeKernelPtx() {
  std::string ptx;
  beginBaselineKernel(kTreeKernel, ", .param .u64 values, .param .u64 types, .param .u64 sizes, .param .u32 length",
                      fmt::format(kTreeDeclarations, kStackEntries * sizeof(float)), ptx);
  constexpr auto kFirstOp = static_cast<std::size_t>(TreeArrays::kUnary);
  ptx += fmt::format(kTreeBegin, kFirstOp);
  const auto ops = allBaselineOps();
  writeBaselineDispatch(0, kFirstOp + ops.size(), ptx);
  ptx += kTreeLeaves;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    ptx += fmt::format("CASE_{}:\n", kFirstOp + i);
    ptx += arityOf(ops[i].op) == 2 ? " add.u64 %sp, %sp, -4;\n ld.local.f32 %x, [%sp];\n ld.local.f32 %y, [%sp+-4];\n"
                                   : " ld.local.f32 %x, [%sp+-4];\n";
    ptx += fmt::format(" {}\n st.local.f32 [%sp+-4], %r;\n bra NEXT;\n", fillBaselineOp(ops[i].ptx, "%x", "%y", "%r"));
  }
  ptx += kTreeEnd;
  writeBaselineSum(ptx);
  ptx += kTreeStore;
  return ptx;
}

std::unique_ptr<Baseline> makeTreeBaseline(std::shared_ptr<const Cuda> cuda, const BenchData& data) {
  return std::make_unique<TreeBaseline>(std::move(cuda), data);
}

}  // namespace srjit
