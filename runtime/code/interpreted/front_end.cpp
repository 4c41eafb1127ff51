#include "runtime/code/interpreted/front_end.h"

#include <bit>
#include <cstring>
#include <utility>
#include <vector>

#include "runtime/platform/aligned_buffer.h"

namespace srjit {
namespace {

/// The bytes of several arrays, and spans that name them where their copy will be.
class ArrayImage {
 public:
  template <class T>
  void add(std::span<const T>& array) {
    constexpr std::size_t kAlignment = 16;
    const std::size_t first = ceilDivide(bytes_.size(), kAlignment) * kAlignment;
    bytes_.resize(first + array.size_bytes());
    std::memcpy(bytes_.data() + first, array.data(), array.size_bytes());
    array = {std::bit_cast<const T*>(first), array.size()};
  }
  template <class T>
  static void place(std::span<const T>& array, CUdeviceptr address) {
    array = {std::bit_cast<const T*>(std::bit_cast<std::uintptr_t>(array.data()) + address), array.size()};
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

template <class Visit>
void forEachArray(EncodeArguments& arguments, const Visit& visit) {
  auto& [ops, variants, checks, steps] = arguments.rules;
  visit(ops);
  visit(variants);
  visit(checks);
  visit(steps);
  visit(arguments.handlers.ops);
  visit(arguments.handlers.plans);
  visit(arguments.handlers.plain);
  visit(arguments.handlers.applies);
}

}  // namespace

FrontEnd::FrontEnd(std::shared_ptr<const Module> module, const std::shared_ptr<const Stream>& stream,
                   Precision precision, Math math, const HandlerTable& table)
    : module_(std::move(module)), encode_(module_->kernel(kEncodeKernel)), link_(module_->kernel(kLinkKernel)) {
  arguments_.precision = precision;
  arguments_.math = math;
  arguments_.rules = rulesFor(ruleModeOf(math, precision));
  arguments_.handlers = table.numbers();
  ArrayImage image;
  forEachArray(arguments_, [&](auto& array) { image.add(array); });
  tables_ = DeviceBuffer(stream, image.bytes().size());
  stream->complete([&] { stream->copyToDevice(tables_.address(), image.bytes().data(), image.bytes().size()); });
  forEachArray(arguments_, [&](auto& array) { ArrayImage::place(array, tables_.address()); });
}

}  // namespace srjit
