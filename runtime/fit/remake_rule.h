// When a program of fits is made again without those that have ended.
#pragma once

#include <cstddef>

namespace srjit::fit {

/// When a program is made again without the fits that have ended: once evaluating ended fits has taken as long as
/// making the program would, but not before half of the fits have ended. Both together then take at most twice as long
/// as with the best moment, which requires knowledge of the passes to come (the ski rental problem: A. Karlin, M.
/// Manasse, L. Rudolph, D. Sleator, "Competitive snoopy caching", Algorithmica 3, 1988).
class RemakeRule {
 public:
  /// A program of `fits` fits was made in `seconds`: 0 if it existed.
  void made(std::size_t fits, double seconds) {
    fits_ = fits;
    seconds_ = seconds;
    wasted_ = 0;
  }
  /// It was evaluated, while `going_on` of its fits went on.
  void evaluated(std::size_t going_on, double seconds) { wasted_ += seconds * (1 - shareOf(going_on)); }
  bool isDue(std::size_t going_on) const { return 2 * going_on <= fits_ && wasted_ >= seconds_ * shareOf(going_on); }

 private:
  double shareOf(std::size_t going_on) const { return static_cast<double>(going_on) / static_cast<double>(fits_); }

  std::size_t fits_ = 0;
  double seconds_ = 0;
  double wasted_ = 0;  ///< by evaluating what had ended
};

}  // namespace srjit::fit
