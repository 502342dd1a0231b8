"""Light on a sphere above a plane, found by marching along rays by the distance to the nearest surface."""

import numpy as np


def distance(points, center, radius):
    sphere = np.linalg.norm(points - center, axis=-1) - radius
    return np.minimum(sphere, points[..., 1] + 1.0)


def normal(points, center, radius, eps=1e-4):
    slopes = [distance(points + eps * axis, center, radius) - distance(points - eps * axis, center, radius)
              for axis in np.eye(3)]
    slopes = np.stack(slopes, axis=-1)
    return slopes / np.linalg.norm(slopes, axis=-1, keepdims=True)


def main(center, radius, light, size=5, steps=30):
    x, y = np.meshgrid(np.linspace(-1, 1, size), np.linspace(-1, 1, size))
    rays = np.stack([x, y, np.full_like(x, 1.5)], axis=-1)
    rays = rays / np.linalg.norm(rays, axis=-1, keepdims=True)
    depth = np.zeros((size, size))
    for _ in range(steps):
        depth = np.minimum(depth + distance(depth[..., None] * rays, center, radius), 20.0)
    points = depth[..., None] * rays
    towards = light / np.linalg.norm(light)
    bright = np.clip(normal(points, center, radius) @ towards, 0.0, 1.0)
    return np.where(depth < 15.0, bright, 0.1), depth


def example():
    return np.array([0.1, 0.2, 4.0]), np.array(1.0), np.array([-1.0, 2.0, -2.0])
