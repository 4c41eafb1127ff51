// The stack interpreter, with one launch per expression or one for all.
#include "tools/bench/baselines/designs/stack_interpreter.h"
#include "tools/bench/baselines/device.h"

namespace srjit {
namespace {

class StackBaseline final : public DeviceBaseline {
 public:
  StackBaseline(std::shared_ptr<const Cuda> device, const BaselineData& data, StackLaunches launches)
      : DeviceBaseline(std::move(device), data), launches_(launches), interpreter_([this] {
          const CurrentContext current(*cuda());
          return StackInterpreter(cuda());
        }()) {}

 private:
  void build(std::span<const Expression> expressions) override {
    const StackPrograms programs = stackPrograms(expressions);
    tokens_ = upload(programs.tokens);
    offsets_ = upload(programs.offsets);
  }

  void launch(std::size_t first, std::size_t count, CUdeviceptr target, CUdeviceptr out) override {
    interpreter_.launch(stream(), {columns(), 0, parameters(), rows()}, {tokens_.address(), offsets_.address()}, first,
                        count, launches_ == StackLaunches::kEach, target, out);
  }

  StackLaunches launches_;
  StackInterpreter interpreter_;
  DeviceBuffer tokens_, offsets_;
};

}  // namespace

std::unique_ptr<Baseline> makeStackBaseline(std::shared_ptr<const Cuda> cuda, const BaselineData& data,
                                            StackLaunches launches) {
  return std::make_unique<StackBaseline>(std::move(cuda), data, launches);
}

}  // namespace srjit
