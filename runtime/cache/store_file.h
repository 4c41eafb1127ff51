// The database file of the kernel store: whether it is one, its connections and schema, and what is done where it is
// damaged.
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

/// What may be done with a store.
enum class StoreAccess {
  kUse,   ///< directory and file are made if they are not there
  kMend,  ///< what is there may be written, made anew and emptied; nothing is made
  kLook   ///< nothing is made or changed
};

/// Thread-safe. A file is this store's own if it bears its application id: in its header, or as SQLite reads it. Its
/// own file is made anew, in place and under SQLite's locks, if it is damaged or has another schema; an empty file, or
/// database without anything in it, is given the schema; all others are refused, and neither they nor what is beside
/// them is changed. So is a file that checkTrustOfFile() refuses; who opens this has checked the directory, whose trust
/// makes names in it mean the same file from one check to the next. Where nothing may be made, an empty store is an
/// empty one in memory, as is one of another schema to who looks.
///
/// A file that cannot be written is read, and where SQLite cannot lock it, as it is; whether it can be written is a
/// fact of each connection. Functions throw SqliteFailure and std::bad_alloc, unless they return a Result.
class StoreFile {
 public:
  StoreFile(std::filesystem::path file, StoreAccess access);

  /// A connection for reading, while it lives. Each reader has its own, so that threads read at the same time and do
  /// not wait for writing.
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

  /// Runs `body`; if the file is damaged and may be written, makes it anew and runs `body` again. Errors: SQLite's; in
  /// the child of a fork(), always.
  template <class Body>
  auto attempt(const Body& body) -> Result<decltype(body())>;

  /// Runs `body` with a connection for writing, in a transaction. Waits for other processes for so long at most, and
  /// hardly if the last change waited in vain. Fails with SQLITE_READONLY where the file may not be written.
  static constexpr int kPatience = 2000;
  template <class Body>
  void change(const Body& body, int wait_milliseconds = kPatience);
  /// Gives what is free in the file back to the disk, as far as that can be done now.
  void compact();

  /// How often the file was made anew by this object.
  std::uint64_t generation() const noexcept { return generation_; }
  /// Empties the file, unless that was done since `generation`. Fails where it may not be written.
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
  std::vector<std::unique_ptr<SqliteFile>> readers_;  ///< idle ones
  std::mutex write_mutex_;
  std::unique_ptr<SqliteFile> writer_;  ///< made when it is first needed
  bool was_busy_ = false;               ///< the last change waited in vain; under write_mutex_
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
