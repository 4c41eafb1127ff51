// Functions of the system by their names in libc, with failures on demand (points.h). Each makes the system call
// itself.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>

#include "tests/faults/points.h"

namespace {

/// The system call of this number, unless that of this name fails here.
template <class... Arguments>
long called(const char* name, long number, Arguments... arguments) noexcept {
  if (!srjit::failsHere(srjit::PointKind::kSystem, name)) return syscall(number, arguments...);
  errno = srjit::injectedNumber();
  return -1;
}

int opened(int folder, const char* path, int flags, unsigned mode) noexcept {
  return static_cast<int>(called("open", SYS_openat, folder, path, flags, mode));
}

/// open() has a mode where it may make a file.
bool hasMode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

void* mapped(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the address, or MAP_FAILED
  return reinterpret_cast<void*>(called("mmap", SYS_mmap, at, bytes, protection, flags, file, offset));
}

}  // namespace

extern "C" {

ssize_t write(int file, const void* from, std::size_t bytes) { return called("write", SYS_write, file, from, bytes); }
ssize_t writev(int file, const iovec* parts, int count) { return called("write", SYS_writev, file, parts, count); }
ssize_t pwrite(int file, const void* from, std::size_t bytes, off_t at) {
  return called("write", SYS_pwrite64, file, from, bytes, at);
}
ssize_t pwrite64(int file, const void* from, std::size_t bytes, off_t at) { return pwrite(file, from, bytes, at); }
ssize_t read(int file, void* to, std::size_t bytes) { return called("read", SYS_read, file, to, bytes); }
ssize_t pread(int file, void* to, std::size_t bytes, off_t at) {
  return called("read", SYS_pread64, file, to, bytes, at);
}
ssize_t pread64(int file, void* to, std::size_t bytes, off_t at) { return pread(file, to, bytes, at); }

int fsync(int file) { return static_cast<int>(called("fsync", SYS_fsync, file)); }
int fdatasync(int file) { return static_cast<int>(called("fsync", SYS_fdatasync, file)); }
int ftruncate(int file, off_t bytes) noexcept {
  return static_cast<int>(called("ftruncate", SYS_ftruncate, file, bytes));
}
int ftruncate64(int file, off_t bytes) noexcept { return ftruncate(file, bytes); }
int fallocate(int file, int mode, off_t at, off_t bytes) {
  return static_cast<int>(called("ftruncate", SYS_fallocate, file, mode, at, bytes));
}
int fallocate64(int file, int mode, off_t at, off_t bytes) { return fallocate(file, mode, at, bytes); }

int rename(const char* from, const char* to) noexcept {
  return static_cast<int>(called("rename", SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return static_cast<int>(called("rename", SYS_renameat2, from_folder, from, to_folder, to, 0));
}
int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return static_cast<int>(called("rename", SYS_linkat, from_folder, from, to_folder, to, flags));
}
int mkdir(const char* path, mode_t mode) noexcept {
  return static_cast<int>(called("mkdir", SYS_mkdirat, AT_FDCWD, path, mode));
}
int mknod(const char* path, mode_t mode, dev_t device) noexcept {
  return static_cast<int>(called("mkdir", SYS_mknodat, AT_FDCWD, path, mode, device));
}

// Of a variadic function only its own body can read the arguments.
#define SRJIT_OPEN(name, folder, ...)                                     \
  int name(__VA_ARGS__ __VA_OPT__(, ) const char* path, int flags, ...) { \
    va_list list;                                                         \
    va_start(list, flags);                                                \
    const unsigned mode = hasMode(flags) ? va_arg(list, unsigned) : 0;    \
    va_end(list);                                                         \
    return opened(folder, path, flags, mode);                             \
  }
SRJIT_OPEN(open, AT_FDCWD)
SRJIT_OPEN(open64, AT_FDCWD)
SRJIT_OPEN(openat, at, int at)
SRJIT_OPEN(openat64, at, int at)
#undef SRJIT_OPEN

int flock(int file, int operation) noexcept { return static_cast<int>(called("flock", SYS_flock, file, operation)); }
void* mmap(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  return mapped(at, bytes, protection, flags, file, offset);
}
void* mmap64(void* at, std::size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  return mapped(at, bytes, protection, flags, file, offset);
}
int mprotect(void* at, std::size_t bytes, int protection) noexcept {
  return static_cast<int>(called("mprotect", SYS_mprotect, at, bytes, protection));
}

#ifdef SRJIT_SANITIZED
// AddressSanitizer must see each thread start.
int __interceptor_pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* with);
#endif

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*run)(void*), void* with) noexcept {
  if (srjit::failsHere(srjit::PointKind::kSystem, "pthread_create")) return srjit::injectedNumber();
#ifdef SRJIT_SANITIZED
  return __interceptor_pthread_create(thread, attributes, run, with);
#else
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto next = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
  return next(thread, attributes, run, with);
#endif
}

}  // extern "C"
