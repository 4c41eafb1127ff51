// The database file of the kernel store: its identification, connections and schema, and recovery from damage.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ir/error.h"
#include "runtime/cache/sqlite_file.h"
#include "runtime/platform/home_process.h"

namespace srjit {

/// What a caller may do with a store.
enum class StoreAccess {
  kUse,   ///< directory and file are created if missing
  kMend,  ///< existing files may be written, recreated and emptied; none is created
  kLook   ///< nothing is created or changed
};

/// Thread-safe. A file belongs to this store if it has the store's application id, in its header or as SQLite reads it.
/// Such a file is recreated, in place and under SQLite's locks, if it is damaged or has another schema. An empty file,
/// or an empty database, gets the schema. All other files are refused, and neither they nor the files beside them are
/// changed; the same holds for a file that checkTrustOfFile() refuses. Precondition: the caller has checked the
/// directory with checkTrustOfDirectory(), so that names in it cannot be exchanged between checks. If `access` forbids
/// creation, an empty store is one in memory; under kLook so is a store of another schema.
///
/// A file that is not writable is opened read-only, and without locks where SQLite cannot lock it; each connection
/// decides that for itself. Functions throw SqliteFailure and std::bad_alloc, unless they return a Result.
class StoreFile {
 public:
  StoreFile(std::filesystem::path file, StoreAccess access);

  /// RAII owner of a connection for reading. Each reader has its own, so that threads read concurrently and do not wait
  /// for writers.
  class Reader {
   public:
    explicit Reader(StoreFile& store) : store_(store), generation_(store.generation_), file_(store.takeReader()) {}
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader() { store_.giveBack(std::move(file_), generation_); }
    SqliteFile* operator->() const { return file_.get(); }

   private:
    StoreFile& store_;
    const std::uint64_t generation_;
    std::unique_ptr<SqliteFile> file_;
  };

  /// Runs `body`; if the file is damaged and writable, recreates it and runs `body` again. Errors: SQLite's; always one
  /// in the child of a fork().
  template <class Body>
  auto attempt(const Body& body) -> Result<decltype(body())>;

  /// Runs `body` with a connection for writing, in a transaction. Waits for other processes for at most
  /// `wait_milliseconds`, or only shortly if the last change timed out. Fails with SQLITE_READONLY if the file is not
  /// writable.
  static constexpr int kPatienceMilliseconds = 2000;
  template <class Body>
  void change(const Body& body, int wait_milliseconds = kPatienceMilliseconds);
  /// Shrinks the file by its free pages; best effort.
  void compact();

  /// How often this object has recreated the file.
  std::uint64_t generation() const noexcept { return generation_; }
  /// Empties the file, unless that was done since `generation`. Fails if it is not writable.
  void remake(std::uint64_t generation);

  const std::filesystem::path& path() const noexcept { return path_; }
  /// Whether this process was forked from the one that opened the file.
  bool isForked() const noexcept { return home_.isForked(); }

 private:
  std::unique_ptr<SqliteFile> look();
  std::unique_ptr<SqliteFile> connectOnce();
  std::unique_ptr<SqliteFile> connect();
  std::unique_ptr<SqliteFile> takeReader();
  void giveBack(std::unique_ptr<SqliteFile> file, std::uint64_t generation) noexcept;
  SqliteFile& writer();

  const std::filesystem::path path_;
  const StoreAccess access_;
  const HomeProcess home_;
  std::atomic<std::uint64_t> generation_ = 0;
  std::mutex readers_mutex_;
  std::vector<std::unique_ptr<SqliteFile>> readers_;  ///< idle connections
  std::mutex write_mutex_;
  std::unique_ptr<SqliteFile> writer_;  ///< created at first use
  bool was_busy_ = false;               ///< the last change timed out; guarded by write_mutex_
};

template <class Body>
auto StoreFile::attempt(const Body& body) -> Result<decltype(body())> {
  if (isForked()) {
    return Error{Errc::kMachine, fmt::format("{} was opened before this process was forked", path_.string()), {}};
  }
  const std::uint64_t generation = generation_;
  std::optional<Error> damage;
  try {
    return body();
  } catch (const SqliteFailure& failure) {
    if (!failure.isDamage()) return failure.error;
    damage = failure.error;
  }
  try {
    remake(generation);
    return body();
  } catch (const SqliteFailure& failure) {
    return failure.isProtection() ? *damage : failure.error;
  }
}

template <class Body>
void StoreFile::change(const Body& body, int wait_milliseconds) {
  constexpr int kHardly = 10;
  const std::scoped_lock lock(write_mutex_);
  SqliteFile& file = writer();
  if (access_ == StoreAccess::kLook || file.readOnly()) file.refuseToWrite("write");
  file.waitWhenBusy(was_busy_ ? kHardly : wait_milliseconds);
  try {
    SqliteTransaction transaction(file);
    body(file);
    transaction.commit();
    was_busy_ = false;
  } catch (const SqliteFailure& failure) {
    was_busy_ = failure.isBusy();
    throw;
  }
}

}  // namespace srjit
