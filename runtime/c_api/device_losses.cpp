// Losses of expressions in a GPU's memory.
#include "ir/token_codes.h"
#include "runtime/c_api/handles.h"
#include "runtime/device_loss.h"

struct srjit_device_loss {
  srjit::DeviceLoss loss;
};

namespace srjit::c_api {

namespace {

// Kernels write the numbers of DeviceFault.
constexpr bool hasNumber(DeviceFault fault, int of_c) { return static_cast<int>(fault) == of_c; }
static_assert(hasNumber(DeviceFault::kNone, SRJIT_FAULT_NONE) && hasNumber(DeviceFault::kLength, SRJIT_FAULT_LENGTH) &&
              hasNumber(DeviceFault::kCode, SRJIT_FAULT_CODE) &&
              hasNumber(DeviceFault::kOperator, SRJIT_FAULT_OPERATOR) &&
              hasNumber(DeviceFault::kVariable, SRJIT_FAULT_VARIABLE) &&
              hasNumber(DeviceFault::kOperands, SRJIT_FAULT_OPERANDS) &&
              hasNumber(DeviceFault::kRest, SRJIT_FAULT_REST) && hasNumber(DeviceFault::kSlots, SRJIT_FAULT_SLOTS));

std::vector<Op> operatorsOf(std::span<const std::int32_t> codes) {
  std::vector<Op> operators;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const std::optional<Op> op = opOfCode(codes[i]);
    if (!op) refuse(Errc::kInvalid, fmt::format("operators[{}] is {}, expected the code of an operator", i, codes[i]));
    operators.push_back(*op);
  }
  return operators;
}

DeviceLossOptions deviceLossOptionsOf(const srjit_device_loss_options* given) {
  const srjit_device_loss_options options = fromCaller(&required(given, "options"), "options");
  checkReserved(options.reserved, "options");
  DeviceLossOptions result;
  result.operators = operatorsOf(arrayOf(options.operators, options.operator_count, "operators"));
  result.expressions = options.expressions;
  result.loss = lossOptionsOf(options.loss);
  if (options.most_tokens != 0) result.most_tokens = options.most_tokens;
  if (options.bytes != 0) result.bytes = options.bytes;
  return result;
}

DevicePopulation devicePopulationOf(const srjit_device_population* given) {
  const srjit_device_population population = fromCaller(&required(given, "population"), "population");
  return {.codes = population.codes,
          .values = population.values,
          .tokens = population.tokens,
          .expressions = population.expressions,
          .offsets = population.offsets,
          .stride = population.stride,
          .lengths = population.lengths,
          .values_type = choiceOf(kPrecisions, population.values_type, "values_type"),
          .notation = notationOf(population.notation)};
}

DeviceLossOutputs outputsOf(const srjit_device_loss_outputs* given) {
  const srjit_device_loss_outputs out = fromCaller(&required(given, "out"), "out");
  checkReserved(static_cast<std::uint32_t>(out.reserved), "out");
  return {.losses = out.losses, .valid_rows = out.valid_rows, .faults = out.faults, .type = precisionOf(out.type)};
}

}  // namespace

extern "C" {

int32_t srjit_device_loss_create(const srjit_engine* engine, const srjit_dataset* data,
                                 const srjit_device_loss_options* options, srjit_device_loss** loss,
                                 srjit_error* error) {
  return answerWith(loss, "loss", error, [&] {
    const Engine& of = required(engine, "engine").engine;
    const Dataset& rows = required(data, "data").data;
    return srjit_device_loss{of.deviceLoss(rows, deviceLossOptionsOf(options)).value()};
  });
}

void srjit_device_loss_free(srjit_device_loss* loss) { delete loss; }

int32_t srjit_device_loss_submit(const srjit_device_loss* loss, const srjit_device_population* population,
                                 const srjit_device_loss_outputs* out, uint64_t stream, srjit_error* error) {
  return answer(error, [&] {
    const DeviceLoss& of = required(loss, "loss").loss;
    of.submit(devicePopulationOf(population), outputsOf(out), stream).value();
  });
}

const char* srjit_fault_text(int32_t fault) {
  if (fault < SRJIT_FAULT_NONE || fault > SRJIT_FAULT_SLOTS) return nullptr;
  return textOf(static_cast<DeviceFault>(fault)).data();
}

}  // extern "C"

}  // namespace srjit::c_api
