// Losses of expressions in a GPU's memory.
#include <optional>
#include <utility>
#include <vector>

#include "core/bindings.h"
#include "ir/ops.h"
#include "ir/population.h"
#include "runtime/device_loss.h"
#include "runtime/engine.h"
#include "runtime/loss_text.h"

namespace srjit::python {

namespace {

DeviceLoss makeDeviceLoss(const Engine& engine, const Dataset& data, const std::vector<std::string>& operators,
                          std::size_t expressions, std::uint32_t most_tokens, const std::string& loss,
                          const std::string& nan, std::size_t bytes) {
  DeviceLossOptions options;
  options.expressions = expressions;
  options.most_tokens = most_tokens;
  for (const std::string& name : operators) {
    const std::optional<Op> op = findOp(name);
    if (!op) throw ErrorException({Errc::kInvalid, "unknown operator '" + name + "'", {}});
    options.operators.push_back(*op);
  }
  options.loss = parseLoss(loss).value();
  options.loss.nan = choiceOf("nan", nan, kNanPolicies);
  if (bytes != 0) options.bytes = bytes;
  const nb::gil_scoped_release free;
  return engine.deviceLoss(data, options).value();
}

/// Arrays of a GPU: address and type; address 0 where there is none.
using Memory = std::pair<std::uint64_t, std::string>;

void submit(const DeviceLoss& loss, std::uint64_t codes, const Memory& values, std::size_t tokens,
            std::size_t expressions, std::uint64_t offsets, std::size_t stride, std::uint64_t lengths, bool prefix,
            const Memory& losses, std::uint64_t valid_rows, std::uint64_t faults, std::uint64_t stream) {
  const DevicePopulation population{.codes = codes,
                                    .values = values.first,
                                    .tokens = tokens,
                                    .expressions = expressions,
                                    .offsets = offsets,
                                    .stride = stride,
                                    .lengths = lengths,
                                    .values_type = choiceOf("type", values.second, kPrecisions),
                                    .notation = prefix ? Notation::kPrefix : Notation::kPostfix};
  const DeviceLossOutputs out{.losses = losses.first,
                              .valid_rows = valid_rows,
                              .faults = faults,
                              .type = choiceOf("type", losses.second, kPrecisions)};
  const nb::gil_scoped_release free;
  loss.submit(population, out, stream).value();
}

nb::str textOfFault(std::uint8_t fault) {
  const std::string_view text = textOf(static_cast<DeviceFault>(fault));
  return nb::str(text.data(), text.size());
}

}  // namespace

void defineDeviceLosses(nb::module_& module) {
  nb::class_<DeviceLoss>(module, "DeviceLoss")
      .def("submit", submit, nb::arg("codes"), nb::arg("values"), nb::arg("tokens"), nb::arg("expressions"),
           nb::arg("offsets"), nb::arg("stride"), nb::arg("lengths"), nb::arg("prefix"), nb::arg("losses"),
           nb::arg("valid_rows"), nb::arg("faults"), nb::arg("stream"));
  module.def("device_loss", makeDeviceLoss, nb::arg("engine"), nb::arg("data"), nb::arg("operators"),
             nb::arg("expressions"), nb::arg("most_tokens"), nb::arg("loss"), nb::arg("nan"), nb::arg("bytes"));
  module.def("text_of_fault", textOfFault, nb::arg("fault"));
  module.attr("MOST_DEVICE_TOKENS") = kMostDeviceTokens;
}

}  // namespace srjit::python
