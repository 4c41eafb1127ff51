// Loops over devices.
#pragma once

#include <cstddef>

#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace srjit {

/// body(0) .. body(count - 1) on threads of the calling thread's arena, each as a task of its own. A thread that waits
/// for another's runs no other tasks of the arena: those may wait for what it holds. `body` must not throw.
template <class Body>
void inParallel(std::size_t count, const Body& body) {
  if (count == 1) return body(std::size_t{0});
  tbb::this_task_arena::isolate([&] { tbb::parallel_for(std::size_t{0}, count, body, tbb::simple_partitioner()); });
}

}  // namespace srjit
