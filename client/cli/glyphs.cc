#include "client/cli/glyphs.h"

#include <algorithm>
#include <cmath>

#include "common/random/splitmix.h"

namespace muster::cli {
namespace {

using random::Splitmix;

struct Point {
  double x = 0;
  double y = 0;
};

// The pen follows corner to corner, or a smooth curve (a quadratic B-spline with these control
// points), open or closed. In a unit square, y down.
enum class Pen { kCorners, kCurve, kLoop };
struct Stroke {
  Pen pen;
  std::vector<Point> points;
};
using Shape = std::vector<Stroke>;

const std::vector<std::vector<Shape>>& Shapes() {
  using enum Pen;
  static const auto& shapes = *new std::vector<std::vector<Shape>>{
      // 0
      {{{kLoop, {{.20, -.05}, {.80, -.05}, {.98, .5}, {.80, 1.05}, {.20, 1.05}, {.02, .5}}}},
       {{kLoop, {{.5, -.1}, {.95, .1}, {.95, .9}, {.5, 1.1}, {.05, .9}, {.05, .1}}}}},
      // 1
      {{{kCorners, {{.5, .02}, {.5, .98}}}},
       {{kCorners, {{.25, .28}, {.55, .02}, {.55, .98}}}},
       {{kCorners, {{.28, .25}, {.52, .02}, {.52, .97}}}, {kCorners, {{.2, .97}, {.85, .97}}}}},
      // 2
      {{{kCurve, {{.10, .30}, {.15, -.05}, {.88, -.08}, {.98, .40}, {.45, .70}, {.08, .97}}},
        {kCorners, {{.08, .97}, {.94, .97}}}},
       {{kCurve, {{.12, .22}, {.35, -.10}, {.95, .02}, {.85, .45}, {.10, .97}}},
        {kCurve, {{.10, .97}, {.35, .80}, {.60, 1.05}, {.95, .88}}}}},
      // 3
      {{{kCurve, {{.10, .15}, {.45, -.12}, {.98, .08}, {.90, .48}, {.40, .48}}},
        {kCurve, {{.40, .48}, {.98, .46}, {1.05, .92}, {.50, 1.12}, {.06, .86}}}},
       {{kCorners, {{.12, .04}, {.86, .04}, {.45, .42}}},
        {kCurve, {{.45, .42}, {.98, .42}, {1.02, .95}, {.50, 1.10}, {.08, .88}}}}},
      // 4
      {{{kCorners, {{.66, .98}, {.66, .03}, {.06, .68}, {.95, .68}}}},
       {{kCorners, {{.22, .03}, {.12, .56}, {.90, .56}}}, {kCorners, {{.72, .22}, {.70, .98}}}}},
      // 5
      {{{kCorners, {{.88, .04}, {.22, .04}, {.17, .46}}},
        {kCurve, {{.17, .46}, {.55, .30}, {1.02, .45}, {.98, .98}, {.45, 1.10}, {.08, .88}}}},
       {{kCurve, {{.92, .05}, {.55, .08}, {.25, .02}, {.22, .44}}},
        {kCurve, {{.22, .44}, {.75, .30}, {1.05, .70}, {.75, 1.05}, {.10, .95}}}}},
      // 6
      {{{kCurve,
         {{.82, .04},
          {.35, .10},
          {.02, .55},
          {.08, 1.05},
          {.60, 1.10},
          {.98, .90},
          {.92, .46},
          {.45, .40},
          {.12, .66}}}},
       {{kCurve, {{.68, .02}, {.28, .30}, {.08, .72}}},
        {kLoop, {{.25, .50}, {.75, .48}, {.95, .75}, {.75, 1.02}, {.25, 1.02}, {.05, .75}}}}},
      // 7
      {{{kCorners, {{.06, .05}, {.94, .05}, {.40, .98}}}},
       {{kCorners, {{.06, .05}, {.92, .05}, {.42, .98}}}, {kCorners, {{.34, .52}, {.84, .52}}}},
       {{kCurve, {{.06, .20}, {.15, .00}, {.60, .14}, {.95, .02}}},
        {kCurve, {{.95, .02}, {.55, .45}, {.48, .98}}}}},
      // 8
      {{{kLoop, {{.25, -.02}, {.75, -.02}, {.92, .24}, {.70, .50}, {.30, .50}, {.08, .24}}},
        {kLoop, {{.28, .46}, {.72, .46}, {1.00, .75}, {.75, 1.03}, {.25, 1.03}, {.00, .75}}}},
       {{kLoop,
         {{.80, .10},
          {.45, -.12},
          {.02, .12},
          {.20, .42},
          {.85, .60},
          {.98, .92},
          {.50, 1.12},
          {.02, .92},
          {.15, .60},
          {.80, .42},
          {.98, .15}}}}},
      // 9
      {{{kLoop, {{.25, -.02}, {.75, -.02}, {.94, .27}, {.72, .56}, {.28, .56}, {.06, .27}}},
        {kCorners, {{.86, .25}, {.80, .98}}}},
       {{kLoop, {{.28, -.02}, {.72, -.02}, {.90, .27}, {.72, .55}, {.25, .55}, {.06, .27}}},
        {kCurve, {{.86, .22}, {.98, .75}, {.70, 1.08}, {.15, .95}}}}},
  };
  return shapes;
}

Point Middle(const Point& a, const Point& b) { return {0.5 * (a.x + b.x), 0.5 * (a.y + b.y)}; }

// Appends the quadratic curve from the end of `line` by `control` to `end`.
void AppendCurve(const Point& control, const Point& end, std::vector<Point>* line) {
  constexpr int kPieces = 6;
  const Point begin = line->back();
  for (int i = 1; i <= kPieces; ++i) {
    const double t = static_cast<double>(i) / kPieces;
    const double a = (1 - t) * (1 - t);
    const double b = 2 * t * (1 - t);
    const double c = t * t;
    line->push_back(
        {a * begin.x + b * control.x + c * end.x, a * begin.y + b * control.y + c * end.y});
  }
}

// The stroke as corners.
std::vector<Point> Flatten(const Stroke& stroke) {
  const std::vector<Point>& points = stroke.points;
  if (stroke.pen == Pen::kCorners) return points;
  const size_t count = points.size();
  std::vector<Point> line;
  if (stroke.pen == Pen::kLoop) {
    line.push_back(Middle(points[count - 1], points[0]));
    for (size_t i = 0; i < count; ++i) {
      AppendCurve(points[i], Middle(points[i], points[(i + 1) % count]), &line);
    }
    return line;
  }
  line.push_back(points[0]);
  for (size_t i = 1; i + 1 < count; ++i) {
    AppendCurve(points[i], i + 2 == count ? points[i + 1] : Middle(points[i], points[i + 1]),
                &line);
  }
  return line;
}

// An image of numbers from 0 to 1; drawing only makes pixels brighter.
class Canvas {
 public:
  explicit Canvas(int size) : size_(size), values_(size * size) {}

  // A line of round ends, `radius` pixels to each side, its edge one pixel soft.
  void Draw(const Point& a, const Point& b, double radius, double brightness) {
    const double reach = radius + 1;
    const int left = Clamp(std::min(a.x, b.x) - reach);
    const int right = Clamp(std::max(a.x, b.x) + reach);
    const int top = Clamp(std::min(a.y, b.y) - reach);
    const int bottom = Clamp(std::max(a.y, b.y) + reach);
    const double dx = b.x - a.x;
    const double dy = b.y - a.y;
    const double length2 = dx * dx + dy * dy;
    for (int y = top; y <= bottom; ++y) {
      for (int x = left; x <= right; ++x) {
        const double px = x - a.x;
        const double py = y - a.y;
        const double t = length2 > 0 ? std::clamp((px * dx + py * dy) / length2, 0.0, 1.0) : 0;
        const double ex = px - t * dx;
        const double ey = py - t * dy;
        const double cover = std::clamp(radius + 0.5 - std::sqrt(ex * ex + ey * ey), 0.0, 1.0);
        double& value = values_[y * size_ + x];
        value = std::max(value, cover * brightness);
      }
    }
  }

  void Draw(const std::vector<Point>& line, double radius, double brightness) {
    for (size_t i = 1; i < line.size(); ++i) Draw(line[i - 1], line[i], radius, brightness);
  }

  const std::vector<double>& values() const { return values_; }

 private:
  // The pixel that far, if there is one, else the nearest.
  int Clamp(double place) const {
    return static_cast<int>(std::clamp(place, 0.0, static_cast<double>(size_ - 1)));
  }

  const int size_;
  std::vector<double> values_;
};

// From the unit square to pixels: scaled, sheared, turned and shifted, all about the middle.
class Placement {
 public:
  Placement(Splitmix* random, int size) {
    const double height = size * random->Uniform(0.48, 0.74);
    const double width = height * random->Uniform(0.55, 0.85);
    const double shear = random->Uniform(-0.35, 0.35);
    // The tangent of half the angle: sine and cosine follow by division alone. Up to 23 degrees.
    const double t = random->Uniform(-0.2, 0.2);
    const double cosine = (1 - t * t) / (1 + t * t);
    const double sine = 2 * t / (1 + t * t);
    xx_ = cosine * width;
    xy_ = cosine * shear * height - sine * height;
    yx_ = sine * width;
    yy_ = sine * shear * height + cosine * height;
    const double shift = 0.12 * size;
    x0_ = 0.5 * (size - 1) + random->Uniform(-shift, shift);
    y0_ = 0.5 * (size - 1) + random->Uniform(-shift, shift);
  }

  Point operator()(const Point& p) const {
    const double x = p.x - 0.5;
    const double y = p.y - 0.5;
    return {x0_ + xx_ * x + xy_ * y, y0_ + yx_ * x + yy_ * y};
  }

 private:
  double xx_, xy_, yx_, yy_, x0_, y0_;
};

void DrawDigit(int digit, Splitmix* random, int size, Canvas* canvas) {
  const Placement place(random, size);
  const auto& variants = Shapes()[digit];
  Shape shape = variants[random->Below(variants.size())];
  const double radius = size * random->Uniform(0.022, 0.055);
  const double brightness = random->Uniform(0.55, 1.0);
  for (Stroke& stroke : shape) {
    for (Point& point : stroke.points) {
      point.x += random->Uniform(-0.05, 0.05);
      point.y += random->Uniform(-0.05, 0.05);
      point = place(point);
    }
    canvas->Draw(Flatten(stroke), radius, brightness);
  }
}

// Short strokes anywhere, fainter than most digits.
void DrawClutter(Splitmix* random, int size, Canvas* canvas) {
  const uint64_t count = random->Below(4);
  for (uint64_t i = 0; i < count; ++i) {
    const Point a = {random->Uniform(0, size), random->Uniform(0, size)};
    const double reach = 0.22 * size;
    const Point b = {a.x + random->Uniform(-reach, reach), a.y + random->Uniform(-reach, reach)};
    // In separate statements, because the compiler chooses the order in which arguments are
    // evaluated.
    const double radius = size * random->Uniform(0.015, 0.04);
    const double brightness = random->Uniform(0.25, 0.6);
    canvas->Draw(a, b, radius, brightness);
  }
}

}  // namespace

Glyph DrawGlyph(uint64_t seed, uint64_t split, uint64_t index, int size) {
  Splitmix random(random::Mix(random::Mix(random::Mix(seed + random::kGamma) + split) + index));
  Glyph glyph;
  glyph.label = static_cast<uint8_t>(random.Below(kGlyphClasses));
  Canvas canvas(size);
  DrawDigit(glyph.label, &random, size, &canvas);
  DrawClutter(&random, size, &canvas);
  const double background = random.Uniform(0.0, 0.15);
  for (const double value : canvas.values()) {
    // Four of them are close to normal: the standard deviation is 0.058.
    double noise = 0;
    for (int i = 0; i < 4; ++i) noise += random.Uniform(-0.05, 0.05);
    const double seen = std::clamp(background + (1 - background) * value + noise, 0.0, 1.0);
    glyph.pixels.push_back(static_cast<uint8_t>(seen * 255 + 0.5));
  }
  return glyph;
}

}  // namespace muster::cli
