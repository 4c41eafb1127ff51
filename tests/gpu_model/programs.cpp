#include "tests/gpu_model/programs.h"

#include "compiler/interpreter/kernel.h"
#include "compiler/nvptx/options.h"
#include "compiler/nvptx/strip.h"
#include "ir/rows.h"

namespace srjit {
namespace {

std::vector<std::size_t> withOutputs(std::vector<std::size_t> bytes, const std::optional<LossSpec>& loss) {
  bytes.insert(bytes.end(), !loss ? 2 : isOfMoments(loss->term) ? 5 : 4, 8);
  return bytes;
}

template <class T>
class RowsModel : public KernelModel {
 public:
  RowsModel(ModelGraph graph, const ModelOptions& options, KernelFacts facts)
      : KernelModel(std::move(facts)), graph_(std::move(graph)), options_(options) {}

  std::vector<std::size_t> parameterBytes() const override {
    return withOutputs(std::vector<std::size_t>(6, 8), options_.loss);
  }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    const ModelColumns columns = ModelColumns::of(launch, options_.strided_columns);
    requireBlocks(launch, ceilDivide(columns.rows, kBlockThreads * options_.rows_per_thread), 1);
    const auto parameters = elementsAt<T>(memory, launch.arguments[4], graph_.parameters);
    const auto numbers = elementsAt<std::uint32_t>(memory, launch.arguments[5], graph_.roots.size());
    ModelOutputs<T> outputs(options_.loss, std::span(launch.arguments).subspan(6), columns.rows, memory);
    for (std::size_t first = 0; first < columns.rows; first += kGroupRows) {
      const auto values = computeGroup(columns, first, parameters, memory);
      for (std::size_t i = 0; i < numbers.size(); ++i) outputs.put(numbers[i], first, values[graph_.roots[i]]);
    }
  }

 private:
  std::vector<std::vector<T>> computeGroup(const ModelColumns& columns, std::size_t first,
                                           std::span<const T> parameters, ModelMemory& memory) const {
    std::vector<std::vector<T>> values;
    const std::vector<T> unused(kGroupRows);
    for (const Node& node : graph_.nodes) {
      std::vector<T> result(kGroupRows);
      switch (node.kind) {
        case Token::Kind::kConstant:
          std::ranges::fill(result, static_cast<T>(node.value));
          break;
        case Token::Kind::kVariable:
          result = columns.read<T>(memory, node.index, first, kGroupRows);
          break;
        case Token::Kind::kParameter:
          std::ranges::fill(result, parameters[node.index]);
          break;
        case Token::Kind::kOp: {
          const auto operand = [&](int i) -> const std::vector<T>& {
            return i < node.arity() ? values[node.operands[static_cast<std::size_t>(i)]] : unused;
          };
          const std::vector<T>&x = operand(0), &y = operand(1), &z = operand(2);
          for (std::size_t r = 0; r < kGroupRows; ++r) result[r] = applyRow<T>(node.op, x[r], y[r], z[r]);
        }
      }
      values.push_back(std::move(result));
    }
    return values;
  }

  ModelGraph graph_;
  ModelOptions options_;
};

/// A group of rows of the interpreter's machine. Unwritten registers and slots hold NaN.
template <class T>
class Machine {
 public:
  using Rows = std::vector<T>;

  Machine(const HandlerTable& table, std::span<Rows> columns, std::size_t slots, std::span<const T> parameters,
          std::size_t rows, bool keeps_sums)
      : table_(table),
        columns_(columns),
        parameters_(parameters),
        nothing_(rows, std::numeric_limits<T>::quiet_NaN()),
        parameter_(rows),
        keeps_sums_(keeps_sums) {
    kept_.assign(kMostKeptSums, nothing_);
    slots_.assign(slots, nothing_);
    stack_.assign(table.spec().depth, nothing_);
    arguments_.assign(kMaxArity, nothing_);
  }

  bool empty() const { return height_ == 0; }

  /// Runs one token; calls put(output, values) for the value of a root.
  template <class Put>
  void step(const DeviceToken& token, const Put& put) {
    const std::uint32_t number = token.code & DeviceToken::kHandlerMask;
    requireOfModel(number < table_.handlers().size(), "handler {} is not in the table", number);
    const Handler& handler = table_.handlers()[number];
    using HandlerKind = Handler::Kind;
    const bool any_height = handler.kind == HandlerKind::kBody || handler.kind == HandlerKind::kArgumentColumn ||
                            handler.kind == HandlerKind::kArgumentParameter;
    requireOfModel(any_height || handler.height == height_, "handler {} of height {} at height {}", number,
                   handler.height, height_);
    const std::uint32_t column = token.code >> DeviceToken::kColumnShift & DeviceToken::kColumnMask;
    switch (handler.kind) {
      case HandlerKind::kPushColumn:
        return push(place(column));
      case HandlerKind::kPushParameter:
        return push(parameter(token));
      case HandlerKind::kApply:
        return apply(handler, token, column);
      case HandlerKind::kArgumentStack:
        argument(handler.argument) = pop();
        return;
      case HandlerKind::kArgumentColumn:
        argument(handler.argument) = place(column);
        return;
      case HandlerKind::kArgumentParameter:
        argument(handler.argument) = parameter(token);
        return;
      case HandlerKind::kBody:
        return applyTo(argument(0), handler.op, argument(0), argument(1), argument(2));
      case HandlerKind::kPushResult:
        return push(argument(0));
      case HandlerKind::kStoreSlot:
        requireOfModel(column >= columns_.size(), "column {} is written", column);
        place(column) = pop();
        return;
      case HandlerKind::kEnd:
        requireOfModel(token.code >> DeviceToken::kArgumentShift == DeviceToken::kNumber,
                       "an output that is no number");
        return put(token.argument, pop());
      case HandlerKind::kKeepSum:
        kept_.at(handler.argument) = pop();
        return;
      case HandlerKind::kKeepProductSum:
        requireOfModel(token.code >> DeviceToken::kArgumentShift == DeviceToken::kColumn,
                       "a second column is not marked as one");
        applyTo(kept_.at(handler.argument), Op::kMul, place(column), place(token.argument), nothing_);
        return;
      case HandlerKind::kStoreSums:
        requireOfModel(keeps_sums_, "sums are kept by a kernel of another loss");
        for (std::uint32_t sum = 0; sum <= handler.argument; ++sum)
          put(token.argument + sum, std::exchange(kept_.at(sum), nothing_));
        return;
      case HandlerKind::kHalt:
      case HandlerKind::kNextWindow:
        throw ModelFault("a program with a halt or a next window; the kernel adds those");
    }
  }

 private:
  // Programs may have many tokens: all rows have the same length, so that copies reuse the memory of the destination.
  void push(const Rows& values) { stack_.at(height_++) = values; }
  /// Valid until the next push.
  const Rows& pop() { return stack_.at(--height_); }
  // The second argument register is the top of the stack.
  Rows& argument(unsigned i) { return i == 1 ? stack_.back() : arguments_.at(i); }

  Rows& place(std::uint32_t number) {
    requireOfModel(number < columns_.size() + slots_.size(), "column {} of {} and {} slots", number, columns_.size(),
                   slots_.size());
    return number < columns_.size() ? columns_[number] : slots_[number - columns_.size()];
  }

  /// The parameter in every row; valid until the next call.
  const Rows& parameter(const DeviceToken& token) {
    requireOfModel(token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter,
                   "a parameter is not marked as one");
    requireOfModel(token.argument < parameters_.size(), "parameter {} is not there", token.argument);
    std::ranges::fill(parameter_, parameters_[token.argument]);
    return parameter_;
  }

  /// `result` may be an operand, since a row depends on no other row.
  static void applyTo(Rows& result, Op op, const Rows& x, const Rows& y, const Rows& z) {
    for (std::size_t r = 0; r < result.size(); ++r) result[r] = applyRow<T>(op, x[r], y[r], z[r]);
  }

  void apply(const Handler& handler, const DeviceToken& token, std::uint32_t column) {
    const auto popped =
        static_cast<unsigned>(std::ranges::count_if(handler.operands, [](char source) { return source <= '2'; }));
    const unsigned base = height_ - popped;
    std::array<const Rows*, kMaxArity> operands = {&nothing_, &nothing_, &nothing_};
    bool second = false;
    for (std::size_t i = 0; i < handler.operands.size(); ++i) {
      const char source = handler.operands[i];
      if (source == 'c') {
        operands[i] = &parameter(token);
      } else if (source != 'v') {
        operands[i] = &stack_.at(base + static_cast<unsigned>(source - '0'));
      } else {
        requireOfModel(!second || token.code >> DeviceToken::kArgumentShift == DeviceToken::kColumn,
                       "a second column is not marked as one");
        operands[i] = &place(second ? token.argument : column);
        second = true;
      }
    }
    applyTo(stack_.at(base), handler.op, *operands[0], *operands[1], *operands[2]);
    height_ = base + 1;
  }

  const HandlerTable& table_;
  std::span<Rows> columns_;
  std::span<const T> parameters_;
  Rows nothing_, parameter_;
  std::vector<Rows> slots_, stack_, arguments_, kept_;
  bool keeps_sums_;
  unsigned height_ = 0;
};

template <class T>
class InterpreterModel : public KernelModel {
 public:
  InterpreterModel(HandlerTable table, const ModelOptions& options, KernelFacts facts)
      : KernelModel(std::move(facts)), table_(std::move(table)), options_(options) {}

  std::vector<std::size_t> parameterBytes() const override {
    std::vector<std::size_t> bytes(8, 8);
    bytes.insert(bytes.end(), 7, 4);
    return withOutputs(std::move(bytes), options_.loss);
  }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    const Shape shape(launch, options_);
    const auto offsets = elementsAt<std::uint32_t>(memory, launch.arguments[7], shape.programs + 1);
    requireOfModel(std::ranges::is_sorted(offsets), "offsets of programs that do not ascend");
    const auto tokens = elementsAt<DeviceToken>(memory, launch.arguments[6], offsets.back());
    requireShared(launch, shape, offsets);
    // Checks the parameter array against the largest index in the tokens.
    const auto parameters = elementsAt<T>(memory, launch.arguments[4], parametersOf(tokens));
    const auto map = elementsAt<std::uint32_t>(memory, launch.arguments[5], shape.staged);
    const ModelColumns columns = ModelColumns::of(launch, options_.strided_columns);
    ModelOutputs<T> outputs(options_.loss, std::span(launch.arguments).subspan(15), columns.rows, memory);
    for (std::size_t first = 0; first < columns.rows; first += shape.tile_rows) {
      const std::size_t rows = std::min(shape.tile_rows, ceilDivide(columns.rows - first, kGroupRows) * kGroupRows);
      std::vector<std::vector<T>> staged;
      for (const std::uint32_t column : map) staged.push_back(columns.read<T>(memory, column, first, rows));
      for (std::size_t p = 0; p < shape.programs; ++p) {
        Machine<T> machine(table_, staged, shape.slots, parameters, rows, options_.loss && isPlainSum(*options_.loss));
        for (const DeviceToken& token : tokens.subspan(offsets[p], offsets[p + 1] - offsets[p])) {
          machine.step(token, [&](std::uint32_t output, const auto& values) { outputs.put(output, first, values); });
        }
        requireOfModel(machine.empty(), "program {} leaves values on the stack", p);
      }
    }
  }

 private:
  struct Shape {
    Shape(const ModelLaunch& launch, const ModelOptions& options)
        : programs(launch.arguments[8]),
          programs_per_warp(launch.arguments[9]),
          row_warps(launch.arguments[10]),
          staged(launch.arguments[12]),
          slots(launch.arguments[13]),
          window(launch.arguments[14]),
          tile_rows(row_warps * 32 * options.rows_per_thread) {
      requireOfModel(row_warps == 1 || row_warps == 2 || row_warps == 4, "{} row warps", row_warps);
      requireOfModel(programs_per_warp > 0, "0 programs per warp");
      const std::size_t tiles = ceilDivide(launch.arguments[3], tile_rows);
      requireOfModel(launch.arguments[11] == tiles, "{} tiles instead of {}", launch.arguments[11], tiles);
      block_programs = programs_per_warp * (kBlockWarps / row_warps);
      requireBlocks(launch, tiles * ceilDivide(programs, block_programs), 1);
    }
    std::size_t programs, programs_per_warp, row_warps, staged, slots, window, tile_rows, block_programs;
  };

  void requireShared(const ModelLaunch& launch, const Shape& shape, std::span<const std::uint32_t> offsets) const {
    std::size_t block_tokens = 0;
    for (std::size_t p = 0; p < shape.programs; p += shape.block_programs) {
      const std::size_t end = std::min(p + shape.block_programs, shape.programs);
      block_tokens = std::max<std::size_t>(block_tokens, offsets[end] - offsets[p]);
    }
    const InterpreterGeometry geometry = {options_.rows_per_thread, static_cast<unsigned>(shape.row_warps),
                                          static_cast<unsigned>(shape.programs_per_warp),
                                          static_cast<unsigned>(shape.window)};
    const std::size_t needed =
        interpreterSharedBytes(options_.precision, geometry, shape.staged, shape.slots, block_tokens);
    requireOfModel(launch.shared_bytes >= needed, "{} bytes of shared memory instead of {}", launch.shared_bytes,
                   needed);
  }

  static std::size_t parametersOf(std::span<const DeviceToken> tokens) {
    std::size_t count = 0;
    for (const DeviceToken& token : tokens) {
      if (token.code >> DeviceToken::kArgumentShift == DeviceToken::kParameter) {
        count = std::max<std::size_t>(count, std::size_t{token.argument} + 1);
      }
    }
    return count;
  }

  HandlerTable table_;
  ModelOptions options_;
};

template <class T>
class TotalsModel : public KernelModel {
 public:
  using KernelModel::KernelModel;

  std::vector<std::size_t> parameterBytes() const override { return {8, 8, 8, 4, 4, 8, 8, 4, 4}; }

  void run(const ModelLaunch& launch, ModelMemory& memory) const override {
    const std::size_t row_groups = launch.arguments[2], outputs = launch.arguments[3], lanes = launch.arguments[4];
    const bool whole = launch.arguments[7] != 0 && launch.arguments[8] != 0;
    requireOfModel(
        lanes == kSumChains || (whole && std::has_single_bit(lanes) && lanes >= row_groups && lanes < kSumChains),
        "{} lanes for {} row groups", lanes, row_groups);
    requireBlocks(launch, ceilDivide(outputs * lanes, kBlockThreads), launch.grid[1]);
    for (std::size_t channel = 0; channel < launch.grid[1]; ++channel) {
      for (std::size_t o = 0; o < outputs; ++o) add(launch, memory, channel, o);
    }
  }

 private:
  static void add(const ModelLaunch& launch, ModelMemory& memory, std::size_t channel, std::size_t output) {
    const auto& a = launch.arguments;
    const std::size_t row_groups = a[2], index = channel * a[3] + output;
    const bool first = a[7] != 0, last = a[8] != 0;
    const auto sums = elementsAt<T>(memory, a[0] + (channel * a[1] + output * row_groups) * sizeof(T), row_groups);
    std::array<double, kSumChains> chains{};
    if (!first) std::ranges::copy(chainsAt(memory, a[5], index), chains.begin());
    for (std::size_t g = 0; g < row_groups; ++g) chains[g % kSumChains] += double{sums[g]};
    if (last) {
      elementsAt<double>(memory, a[6] + index * sizeof(double), 1)[0] = sumOfRowGroup<double>(chains);
    } else {
      std::ranges::copy(chains, chainsAt(memory, a[5], index).begin());
    }
  }

  static std::span<double> chainsAt(ModelMemory& memory, std::uint64_t chains, std::size_t index) {
    return elementsAt<double>(memory, chains + index * kSumChains * sizeof(double), kSumChains);
  }
};

template <template <class> class Model, class... Arguments>
std::unique_ptr<KernelModel> makeModel(Precision precision, Arguments&&... arguments) {
  if (precision == Precision::kF32) return std::make_unique<Model<float>>(std::forward<Arguments>(arguments)...);
  return std::make_unique<Model<double>>(std::forward<Arguments>(arguments)...);
}

}  // namespace

std::unique_ptr<KernelModel> makeRowsModel(ModelGraph graph, const ModelOptions& options, KernelFacts facts) {
  return makeModel<RowsModel>(options.precision, std::move(graph), options, std::move(facts));
}

std::unique_ptr<KernelModel> makeInterpreterModel(HandlerTable table, const ModelOptions& options, KernelFacts facts) {
  return makeModel<InterpreterModel>(options.precision, std::move(table), options, std::move(facts));
}

std::unique_ptr<KernelModel> makeTotalsModel(const ModelOptions& options, KernelFacts facts) {
  return makeModel<TotalsModel>(options.precision, std::move(facts));
}

}  // namespace srjit
