// Entries about copies, streams, events, modules, launches and graphs.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "tests/gpu_model/fake_state.h"

namespace srjit {
namespace {

using Kind = FakeState::Kind;

// Duration of a copy by the device's clock.
constexpr double kCopyMilliseconds = 100;

// `run` is skipped once the device is lost.
FakeWork work(const std::shared_ptr<FakeStream>& stream, std::function<void()> run) {
  FakeWork work;
  FakeContext* const context = stream->context;
  work.run = [context, run = std::move(run)] {
    if (context->lost == CUDA_SUCCESS) run();
  };
  return work;
}

// Pageable memory is read during the call, pinned memory when the device executes the copy.
CUresult copyToDevice(FakeState& state, const std::shared_ptr<FakeStream>& queue, CUdeviceptr to, const void* from,
                      std::size_t bytes) {
  const auto* const source = static_cast<const std::byte*>(from);
  FakeWork copy;
  if (state.isPinned(from, bytes)) {
    copy = work(queue, [&state, to, source, bytes] {
      state.milliseconds += kCopyMilliseconds;
      std::memcpy(state.range(to, bytes), source, bytes);
    });
    copy.host = from;
    copy.host_bytes = bytes;
  } else {
    copy = work(queue, [&state, to, kept = std::vector<std::byte>(source, source + bytes)] {
      state.milliseconds += kCopyMilliseconds;
      std::ranges::copy(kept, state.range(to, kept.size()));
    });
  }
  return state.put(queue, std::move(copy));
}

// The call waits for a copy to pageable memory, as CUDA does.
CUresult copyToHost(FakeState& state, const std::shared_ptr<FakeStream>& queue, void* to, CUdeviceptr from,
                    std::size_t bytes) {
  FakeWork copy = work(queue, [&state, to, from, bytes] {
    state.milliseconds += kCopyMilliseconds;
    std::memcpy(to, state.range(from, bytes), bytes);
  });
  const bool pinned = state.isPinned(to, bytes);
  if (pinned) {
    copy.host = to;
    copy.host_bytes = bytes;
  }
  const CUresult code = state.put(queue, std::move(copy));
  if (code == CUDA_SUCCESS && !pinned) state.advance(*queue);
  return code;
}

CUresult copyOnDevice(FakeState& state, const std::shared_ptr<FakeStream>& queue, CUdeviceptr to, CUdeviceptr from,
                      std::size_t bytes) {
  return state.put(queue, work(queue, [&state, to, from, bytes] {
                     state.milliseconds += kCopyMilliseconds;
                     std::memcpy(state.range(to, bytes), state.range(from, bytes), bytes);
                   }));
}

CUresult refuse(const char* log, CUresult code, unsigned options, const CUjit_option* names, void** values) {
  char* buffer = nullptr;
  std::size_t size = 0;
  for (unsigned i = 0; i < options; ++i) {
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER) buffer = static_cast<char*>(values[i]);
    if (names[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) size = reinterpret_cast<std::size_t>(values[i]);
  }
  if (buffer != nullptr && size > 0) {
    std::strncpy(buffer, log, size - 1);
    buffer[size - 1] = '\0';
  }
  return code;
}

}  // namespace

CUresult FakeEntries::cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    return copyToDevice(state, state.find(state.streams, stream, "stream"), to, from, bytes);
  });
}

CUresult FakeEntries::cuMemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    return copyToHost(state, state.find(state.streams, stream, "stream"), to, from, bytes);
  });
}

CUresult FakeEntries::cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    return copyOnDevice(state, state.find(state.streams, stream, "stream"), to, from, bytes);
  });
}

CUresult FakeEntries::cuMemcpy2DAsync(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto queue = state.find(state.streams, stream, "stream");
    const bool in = copy->srcMemoryType == CU_MEMORYTYPE_HOST && copy->dstMemoryType == CU_MEMORYTYPE_DEVICE;
    const bool out = copy->srcMemoryType == CU_MEMORYTYPE_DEVICE && copy->dstMemoryType == CU_MEMORYTYPE_HOST;
    const bool inside = copy->srcMemoryType == CU_MEMORYTYPE_DEVICE && copy->dstMemoryType == CU_MEMORYTYPE_DEVICE;
    state.note(copy->WidthInBytes * copy->Height, in ? "in" : out ? "out" : "inside");
    const auto device = static_cast<std::size_t>(state.current()->device);
    if ((!in && !out && !inside) || copy->srcPitch < copy->WidthInBytes || copy->dstPitch < copy->WidthInBytes ||
        std::max(copy->srcPitch, copy->dstPitch) > state.options.devices[device].max_pitch) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult code = CUDA_SUCCESS;
    for (std::size_t row = 0; row < copy->Height && code == CUDA_SUCCESS; ++row) {
      const std::size_t from = (copy->srcY + row) * copy->srcPitch + copy->srcXInBytes;
      const std::size_t to = (copy->dstY + row) * copy->dstPitch + copy->dstXInBytes;
      code = in ? copyToDevice(state, queue, copy->dstDevice + to, static_cast<const std::byte*>(copy->srcHost) + from,
                               copy->WidthInBytes)
             : inside ? copyOnDevice(state, queue, copy->dstDevice + to, copy->srcDevice + from, copy->WidthInBytes)
                      : copyToHost(state, queue, static_cast<std::byte*>(copy->dstHost) + to, copy->srcDevice + from,
                                   copy->WidthInBytes);
    }
    return code;
  });
}

CUresult FakeEntries::cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t bytes, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.note(bytes);
    const auto queue = state.find(state.streams, stream, "stream");
    return state.put(queue,
                     work(queue, [&state, to, value, bytes] { std::memset(state.range(to, bytes), value, bytes); }));
  });
}

CUresult FakeEntries::cuStreamCreate(CUstream* stream, unsigned flags) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    if (flags != CU_STREAM_NON_BLOCKING) state.problem("a stream that waits for the default stream");
    state.add(state.streams, stream,
              std::make_shared<FakeStream>(FakeStream{state.current(), state.last_handle + 1, {}}));
  });
}

CUresult FakeEntries::cuStreamDestroy(CUstream stream) {
  return FakeState::enter(__func__, Kind::kRelease, [&](FakeState& state) {
    // Destroying a stream completes its work, as in CUDA.
    state.advance(*state.find(state.streams, stream, "stream"));
    state.remove(state.streams, stream, "stream");
  });
}

CUresult FakeEntries::cuStreamSynchronize(CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto queue = state.find(state.streams, stream, "stream");
    state.note(0, {}, queue->number);
    state.advance(*queue);
    return queue->context->lost;
  });
}

CUresult FakeEntries::cuCtxSynchronize() {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    for (const auto& [handle, queue] : state.streams) state.advance(*queue);
    return state.current()->lost;
  });
}

CUresult FakeEntries::cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto queue = state.find(state.streams, stream, "stream");
    const auto found = state.find(state.events, event, "event");
    if (!found->mark) return CUDA_SUCCESS;
    FakeWork wait;
    wait.run = [] {};
    wait.after = found->mark;
    return state.put(queue, std::move(wait));
  });
}

CUresult FakeEntries::cuEventCreate(CUevent* event, unsigned flags) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const bool timing = (flags & CU_EVENT_DISABLE_TIMING) == 0;
    state.add(state.events, event, std::make_shared<FakeEvent>(FakeEvent{state.current(), timing, nullptr}));
  });
}

CUresult FakeEntries::cuEventDestroy(CUevent event) {
  return FakeState::enter(__func__, Kind::kRelease,
                          [&](FakeState& state) { state.remove(state.events, event, "event"); });
}

CUresult FakeEntries::cuEventRecord(CUevent event, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto queue = state.find(state.streams, stream, "stream");
    const auto found = state.find(state.events, event, "event");
    found->mark = state.mark(queue);
  });
}

CUresult FakeEntries::cuEventQuery(CUevent event) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.events, event, "event");
    if (!found->mark || found->mark->done) return found->context->lost;
    if (const auto stream = found->mark->stream.lock()) state.advance(*stream, found->mark.get());
    return CUDA_ERROR_NOT_READY;
  });
}

CUresult FakeEntries::cuEventSynchronize(CUevent event) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.events, event, "event");
    if (found->mark) {
      if (const auto stream = found->mark->stream.lock()) state.advance(*stream, found->mark.get());
    }
    return found->context->lost;
  });
}

CUresult FakeEntries::cuEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto start = state.find(state.events, from, "event"), end = state.find(state.events, to, "event");
    const bool are_recorded = start->timing && end->timing && start->mark && end->mark;
    if (!are_recorded) throw FakeRefusal{CUDA_ERROR_INVALID_HANDLE};
    if (!start->mark->done || !end->mark->done) throw FakeRefusal{CUDA_ERROR_NOT_READY};
    *milliseconds = static_cast<float>(end->mark->milliseconds - start->mark->milliseconds);
  });
}

CUresult FakeEntries::cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned options, CUjit_option* names,
                                         void** values) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    std::optional<ModelImage> model = readDirectModel(image, state.alter_code);
    if (!model) model = readModel(static_cast<const char*>(image));
    if (!model) return refuse("not an image of models\n", CUDA_ERROR_INVALID_IMAGE, options, names, values);
    const unsigned device = state.options.devices[static_cast<std::size_t>(state.current()->device)].capability;
    const auto arch = static_cast<unsigned>(std::stoul(model->arch.substr(3)));
    if (arch > device || (!model->is_ptx && arch / 10 != device / 10)) {
      return refuse("made for another device\n", CUDA_ERROR_NO_BINARY_FOR_GPU, options, names, values);
    }
    if (!model->kernels.empty()) state.note(0, model->kernels.front()->facts().name);
    state.add(state.modules, module, std::make_shared<FakeModule>(FakeModule{state.current(), std::move(*model)}));
    return CUDA_SUCCESS;
  });
}

CUresult FakeEntries::cuModuleUnload(CUmodule module) {
  return FakeState::enter(__func__, Kind::kRelease, [&](FakeState& state) {
    const auto found = state.find(state.modules, module, "module");
    std::erase_if(state.functions, [&](const auto& entry) { return entry.second->module == found; });
    state.remove(state.modules, module, "module");
  });
}

CUresult FakeEntries::cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.modules, module, "module");
    const auto kernel =
        std::ranges::find_if(found->image.kernels, [&](const auto& model) { return model->facts().name == name; });
    if (kernel == found->image.kernels.end()) throw FakeRefusal{CUDA_ERROR_NOT_FOUND};
    const auto known =
        std::ranges::find_if(state.functions, [&](const auto& entry) { return entry.second->model == kernel->get(); });
    if (known != state.functions.end()) {
      *function = reinterpret_cast<CUfunction>(known->first);
    } else {
      state.add(state.functions, function, std::make_shared<FakeFunction>(FakeFunction{found, kernel->get()}));
    }
  });
}

CUresult FakeEntries::cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.functions, function, "kernel");
    *value = 0;
    if (attribute == CU_FUNC_ATTRIBUTE_NUM_REGS) *value = static_cast<int>(found->model->facts().registers);
    if (attribute == CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES) *value = static_cast<int>(found->model->facts().stack_bytes);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
      *value = static_cast<int>(found->dynamic_shared_bytes);
    }
  });
}

CUresult FakeEntries::cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.functions, function, "kernel");
    const auto device = static_cast<std::size_t>(state.current()->device);
    const auto bytes = static_cast<std::size_t>(std::max(value, 0));
    if (attribute != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
        bytes > state.options.devices[device].shared_bytes_per_block) {
      throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    }
    found->dynamic_shared_bytes = bytes;
  });
}

CUresult FakeEntries::cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                     CUstream stream, void** parameters, void**) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto queue = state.find(state.streams, stream, "stream");
    const FakeKernelCall call =
        state.prepare(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes, parameters);
    state.note(0, call.function->model->facts().name);
    return state.putKernels(
        queue, work(queue, [&state, queue = queue.get(), call] { state.runKernel(call, *queue->context); }));
  });
}

CUresult FakeEntries::cuGraphCreate(CUgraph* graph, unsigned) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    state.add(state.graphs, graph, std::make_shared<FakeGraph>(FakeGraph{state.current(), {}}));
  });
}

CUresult FakeEntries::cuGraphDestroy(CUgraph graph) {
  return FakeState::enter(__func__, Kind::kRelease,
                          [&](FakeState& state) { state.remove(state.graphs, graph, "graph"); });
}

CUresult FakeEntries::cuGraphAddKernelNode(CUgraphNode* node, CUgraph graph, const CUgraphNode*,
                                           std::size_t dependencies, const CUDA_KERNEL_NODE_PARAMS* parameters) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.graphs, graph, "graph");
    const CUDA_KERNEL_NODE_PARAMS& p = *parameters;
    FakeKernelCall call = state.prepare(p.func, {p.gridDimX, p.gridDimY, p.gridDimZ},
                                        {p.blockDimX, p.blockDimY, p.blockDimZ}, p.sharedMemBytes, p.kernelParams);
    if (dependencies > 0) throw FakeRefusal{CUDA_ERROR_INVALID_VALUE};
    const std::uint64_t handle = ++state.last_handle;
    found->nodes.emplace(handle, std::move(call));
    *node = reinterpret_cast<CUgraphNode>(handle);
  });
}

CUresult FakeEntries::cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph, unsigned long long) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.graphs, graph, "graph");
    state.add(state.executables, executable, std::make_shared<FakeGraph>(*found));
  });
}

CUresult FakeEntries::cuGraphExecDestroy(CUgraphExec executable) {
  return FakeState::enter(__func__, Kind::kRelease,
                          [&](FakeState& state) { state.remove(state.executables, executable, "graph"); });
}

CUresult FakeEntries::cuGraphLaunch(CUgraphExec executable, CUstream stream) {
  return FakeState::enter(__func__, Kind::kInContext, [&](FakeState& state) {
    const auto found = state.find(state.executables, executable, "graph");
    const auto queue = state.find(state.streams, stream, "stream");
    if (!found || !queue) return CUDA_ERROR_INVALID_HANDLE;
    state.note(0, fmt::format("{} kernels", found->nodes.size()));
    return state.putKernels(queue, work(queue, [&state, queue = queue.get(), nodes = found->nodes] {
                              for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
                                state.runKernel(node->second, *queue->context);
                              }
                            }));
  });
}

}  // namespace srjit
