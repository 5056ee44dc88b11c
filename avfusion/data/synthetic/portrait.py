"""The still portrait: one head without open eyes and mouth, lit from the camera's side.

Skin is a height field (an ellipsoid with brow ridge, sockets, nose, cheek bones, chin) shaded by its normals; hair is
noise drawn out along its strands. Proportions follow head measurements: eyes halfway between crown and chin, the nose
ending halfway between eyes and chin. Coordinates are the face units of ``face``; pictures are ``(M, M)`` float32 grey
levels in 0..255.
"""

from __future__ import annotations

import numpy as np

from avfusion.data.synthetic.camera import Camera
from avfusion.data.synthetic.drawing import Array, bump, cover, ellipse, noise, ramp
from avfusion.data.synthetic.face import Face

REACH = 1.5  # the portrait shows -REACH..REACH, more than the view, for sway and zoom
EYE_V, NOSE_V, MOUTH_V = -0.05, 0.36, 0.55
_COVERING = ("bob", "long", "fringe")  # styles that hide the ears


class Portrait:
    """One head at rest.

    Attributes:
        grey: ``(M, M)`` levels; soft edges are multiplied by their opacity.
        opacity: ``(M, M)`` how far the head hides the room.
        depth: ``(M, M)`` how far a point lies before the axis the head turns around, in face units.
        glare: ``(M, M)`` light that spectacle lenses throw back, to be added over the eyes; None without glasses.
    """

    def __init__(self, face: Face, camera: Camera, rng: np.random.Generator, size: int) -> None:
        axis = np.linspace(-REACH, REACH, size, dtype=np.float32)
        self.u, self.v = np.broadcast_arrays(axis[None, :], axis[:, None])
        self.side = np.abs(self.u)  # a face is nearly the same on both sides
        self.edge = 1.5 * 2 * REACH / size
        self.face, self.camera, self.rng = face, camera, rng
        self.grey = np.zeros((size, size), np.float32)
        self.opacity = np.zeros((size, size), np.float32)
        self.glare: Array | None = None
        self.outline = self._face_outline()
        self.skull = ellipse(self.u, self.v + 0.1, face.face_width + 0.01, 0.88)
        self._measure_hair()
        self._draw_behind()
        self._draw_skin()
        self._draw_brows_and_beard()
        if face.glasses:
            self._draw_glasses()
        self._draw_front_hair()
        self.depth = self._depth()

    def paint(self, level: Array | float, covered: Array) -> None:
        """Covers what is there with a grey level."""
        self.grey += (level - self.grey) * covered
        self.opacity += (1 - self.opacity) * covered

    def darken(self, share: float, covered: Array) -> None:
        """Takes a share of the light away."""
        self.grey *= 1 - np.float32(share) * covered

    def _shade(self, height: Array) -> Array:
        """Light on a height field, about 1 where it faces the viewer: ambient, diffuse from the camera's light."""
        pitch = 2 * REACH / len(height)
        down, along = np.gradient(height, pitch)
        light_u, light_v, light_w = self.camera.light_right, self.camera.light_down, 0.9
        strength = 1 / np.sqrt(light_u**2 + light_v**2 + light_w**2)
        normal = 1 / np.sqrt(1 + along * along + down * down)
        facing = (light_w - light_u * along - light_v * down) * normal * np.float32(strength)
        self.facing = np.clip(facing, 0, 1)
        shade: Array = 0.32 + 0.78 * self.facing + 0.06 * normal
        return shade

    def _face_outline(self) -> Array:
        """Signed distance to the outline of face and skull: round above, jaw and chin below the ears."""
        face, pitch = self.face, 2 * REACH / len(self.u)
        below = self.v > 0.05
        rise = np.where(below, (self.v - 0.05) / (face.chin - 0.05), (self.v - 0.05) / -1.0)
        across = self.side / face.face_width
        lower = across ** (1.75 + 0.3 * face.jaw) + rise ** (1.75 + 1.25 * face.jaw) - 1
        field = np.where(below, lower, across**2 + rise**2.2 - 1)
        down, along = np.gradient(field, pitch)
        distance: Array = field / np.sqrt(down * down + along * along + 1e-3)
        return distance

    def _relief(self) -> Array:
        """Height of the bare face over the picture plane, in face units."""
        face, u, v, side = self.face, self.u, self.v, self.side
        reach = (u / (1.1 * face.face_width)) ** 2 + ((v + 0.02) / 1.08) ** 2
        height = 0.62 * np.sqrt(np.maximum(1 - reach, 0.03))
        for size, at_u, at_v, half_width, half_height in (
            (0.015 + 0.03 * face.masculine, 0.27, face.brow_height + 0.02, 0.2, 0.07),  # brow ridge
            (-0.07, 0.27, EYE_V - 0.02, 0.17, 0.11),  # eye socket
            (0.05, face.eye_space, EYE_V, 0.12, 0.075),  # eyeball
            (-0.02, 0.13, EYE_V - 0.02, 0.06, 0.09),  # inner corner
            (0.06 * face.cheeks, 0.42, 0.17, 0.16, 0.11),  # cheek bone
            (-0.04 * face.cheeks * (0.5 + face.masculine), 0.44, 0.46, 0.12, 0.16),  # hollow below it
            (0.03 * (1 - face.masculine), 0.36, 0.3, 0.16, 0.16),  # soft cheek
            (-0.03, 0.6, -0.3, 0.1, 0.2),  # temple
            (-0.008 - 0.024 * face.age, 0.26, EYE_V + 0.15, 0.12, 0.04),  # under the eye
            (0.05, 0.0, MOUTH_V, 0.25, 0.14),  # the lips lie on a mound
            (-0.014, 0.0, 0.445, 0.024, 0.05),  # philtrum
            (-0.02, 0.0, 0.71, 0.15, 0.04),  # fold above the chin
            (0.06, 0.0, 0.83, 0.13, 0.08),  # chin
            (-0.02 * max(face.jaw - 0.5, 0), 0.0, 0.84, 0.02, 0.05),  # its cleft
        ):
            height += size * bump(side - at_u, v - at_v, half_width, half_height)
        fold = side - 0.16 - 0.17 * np.clip((v - NOSE_V) / 0.26, -0.2, 1.3)
        height -= (0.005 + 0.022 * face.age) * bump(fold, v - 0.47, 0.035, 0.12)
        height += (0.004 * face.age**2) * np.sin((v + 0.06 * side) * 90) * bump(side, v + 0.46, 0.35, 0.09)
        return height + self._nose()

    def _nose(self) -> Array:
        """Height of the nose over the face: bridge, tip and wings."""
        face, u, v, side = self.face, self.u, self.v, self.side
        tip_v = NOSE_V - 0.05 + 0.25 * (face.nose_length - 1)
        down = np.clip((v + 0.2) / (tip_v + 0.2), 0, 1)
        width = face.nose_width * (0.085 + 0.03 * down)
        bridge = (0.045 + 0.09 * down) * np.exp(-((u / width) ** 2)) * ramp(v, -0.42, 0.05)
        bridge *= 1 - ramp(v, tip_v - 0.04, tip_v + 0.13)
        tip = 0.055 * bump(u, v - tip_v, 0.085 * face.nose_width, 0.08)
        wings = 0.045 * bump(side - 0.11 * face.nose_width, v - tip_v - 0.02, 0.055, 0.055)
        nose: Array = bridge + tip + wings
        return nose

    def _measure_hair(self) -> None:
        """Sets outline and strands of the hair."""
        face, u, v = self.face, self.u, self.v
        tapered = face.hair_style in ("short", "buzz", "receding", "bun")
        width = face.face_width + 0.02 + (0.25 if tapered else 0.7) * face.hair_volume
        self.hair_edge = ellipse(u, v + 0.1, width, 0.87 + face.hair_volume)
        globe = np.sqrt(np.clip(1 - ((v + 0.1) / 1.05) ** 2, 0.08, 1))
        meridian = (u - face.parting * np.clip(-v, 0, 1)) / np.where(v < -0.1, globe, 1)
        if face.hair_style == "short":  # combed away from the parting
            meridian = 0.7 * meridian + 0.45 * (v + 1.1) / (0.45 + np.abs(u - face.parting))
        if face.hair_style == "curly":
            bend = 0.1 * noise(self.rng, u, v, (9, 9))
            strands = 0.9 * np.sin(4 * noise(self.rng, u + bend, v - bend, (13, 13))) + 0.4 * noise(
                self.rng, u, v, (40, 40)
            )
            self.hair_edge = ellipse(u, v + 0.3, width, 0.68 + face.hair_volume) + 0.03 * noise(
                self.rng, u, v, (17, 17)
            )
        elif face.hair_style == "buzz":
            strands = 0.5 * noise(self.rng, u, v, (60, 60)) + 0.2 * noise(self.rng, u, v, (8, 8))
        else:
            strands = 0.55 * noise(self.rng, meridian, v, (26, 3)) + 0.45 * noise(self.rng, meridian, v, (58, 5))
        self.strands = strands
        body = 1 - np.clip((u / (width + 0.05)) ** 2 + (np.minimum(v + 0.1, 0) / 1.1) ** 2, 0, 0.98)
        volume = self._shade(0.5 * np.sqrt(body))
        sheen = np.exp(-(((v + 0.74 - 0.25 * u * u) / 0.1) ** 2)) * (0.6 + 0.5 * strands)
        glow = (18 + 0.3 * face.hair) * (0.4 if face.hair_style in ("curly", "buzz") else 1)
        self.hair_level = np.clip(
            face.hair * (0.25 + 0.75 * volume + (0.13 if face.hair_style == "short" else 0.2) * strands) + glow * sheen,
            4,
            245,
        )

    def _draw_behind(self) -> None:
        """Hair behind the face, neck, clothes and ears."""
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        ends = v - face.hair_length + 0.05 * self.strands
        if face.hair_style == "curly":
            halo = ellipse(u, v + 0.3, face.face_width + face.hair_volume, 0.66 + face.hair_volume)
            self.paint(0.7 * self.hair_level, cover(np.minimum(halo + 0.025 * self.strands, self.hair_edge), 2 * edge))
        if face.hair_style in _COVERING:
            width = face.face_width + 0.02 + 0.7 * face.hair_volume + 0.04 * np.clip(v, 0, 1)
            falling = np.maximum(side - width + 0.01 * self.strands, -v - 0.1)
            back = np.maximum(np.minimum(self.hair_edge, falling), ends)
            self.paint(0.62 * self.hair_level, cover(back, 2 * edge))
        if face.hair_style == "bun":
            knot = ellipse(u - 0.3 * face.parting, v + 1.0, 0.27, 0.2) + 0.02 * self.strands
            self.paint(self.hair_level * 0.9, cover(knot, edge))
        half_neck = 0.36 + 0.1 * face.masculine
        rounding = 1.0 - 0.45 * (u / half_neck) ** 2 + 0.25 * self.camera.light_right * u / half_neck
        neck = np.maximum(side - half_neck - 0.3 * ramp(v, 0.95, 1.5), 0.3 - v)
        self.paint(0.8 * face.skin * rounding, cover(neck, edge))
        self.darken(0.5, cover(neck, edge) * np.exp(-np.maximum(self.outline, 0) / 0.12) * (v > 0.3))
        self._draw_clothes()
        if face.hair_style not in _COVERING:
            self._draw_ears()

    def _draw_clothes(self) -> None:
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        folds = 1 + 0.08 * noise(self.rng, u, v, (7, 4)) + 0.2 * self.camera.light_right * u
        shoulder = 1.02 + 0.16 * np.maximum(side - 0.35, 0) - v
        neckline = {"round": 1.24, "shirt": 1.3, "jacket": 1.36, "high": 1.02}[face.collar]
        opening = v - neckline + (0.5 if face.collar == "round" else 1.0) * side**2 * (face.collar != "high")
        cloth = np.maximum(shoulder, -opening if face.collar != "high" else shoulder)
        self.paint(face.cloth * folds, cover(cloth, edge))
        if face.collar in ("shirt", "jacket"):
            fall = v - 0.97
            flap = np.maximum(np.abs(side - 0.46 + 0.75 * fall) - 0.05 - 0.2 * fall, np.abs(fall - 0.2) - 0.2)
            level = 0.5 * face.cloth + 110 if face.collar == "shirt" else 0.6 * face.cloth
            self.paint(level * folds, cover(flap, edge))

    def _draw_ears(self) -> None:
        face, v, edge = self.face, self.v, self.edge
        along = self.side - face.face_width - 0.015
        ear = ellipse(along - 0.1 * (-v + 0.06), v - 0.06, 0.075, 0.18)
        self.paint(face.skin * (0.86 + 0.16 * self.camera.light_right * np.sign(self.u)), cover(ear, edge))
        self.darken(0.4, bump(along - 0.012, v - 0.04, 0.03, 0.09))
        self.darken(0.18, cover(np.abs(ear + 0.03) - 0.012, edge))

    def _draw_skin(self) -> None:
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        spots = noise(self.rng, u, v, (50, 50))
        mottling = 1 + 0.02 * noise(self.rng, u, v, (8, 8)) - 0.06 * face.freckles * np.clip(spots - 0.8, 0, 1)
        shade = self._shade(self._relief())
        shine = np.clip((self.facing - 0.86) / 0.14, 0, 1) ** 3
        level = face.skin * mottling * shade + (12 + 0.06 * face.skin) * shine
        self.oval = cover(self.outline, edge)
        self.paint(level, self.oval)
        for share, at_u, at_v, half_width, half_height in (
            (0.14, 0.27, EYE_V - 0.04, 0.17, 0.09),  # light hardly reaches the sockets
            (0.08, 0.13, EYE_V - 0.02, 0.06, 0.08),
            (0.05 + 0.1 * face.age, 0.27, EYE_V + 0.12, 0.12, 0.045),
            (0.06, 0.4, 0.25, 0.14, 0.12),  # blood in the cheeks
        ):
            self.darken(share, bump(side - at_u, v - at_v, half_width, half_height))
        self.darken(0.25, np.exp(np.minimum(self.outline, 0) / 0.035) * self.oval * 0.8)  # the head turns away
        base_v = NOSE_V + 0.02 + 0.25 * (face.nose_length - 1)
        self.darken(0.2, bump(u + 0.04 * self.camera.light_right, v - base_v - 0.035, 0.13 * face.nose_width, 0.035))
        self.darken(0.6, bump(side - 0.06 * face.nose_width, v - base_v + 0.005, 0.032, 0.016))  # nostrils
        shadow_side = -1.0 if self.camera.light_right > 0 else 1.0
        shadow = bump(u - shadow_side * 0.115 * face.nose_width, v - 0.2, 0.05, 0.16)
        self.darken(0.22 * abs(self.camera.light_right), shadow)

    def _draw_brows_and_beard(self) -> None:
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        hairs = noise(self.rng, u + 0.5 * v, v, (100, 30))
        along = (side - 0.29) / 0.19
        arch = face.brow_height - face.brow_tilt * along * 0.19 - 0.03 * face.brow_arch * (1 - along**2) + 0.012
        weight = face.brow_weight * (1 - 0.45 * np.clip(along, -0.3, 1)) * np.clip(1.6 - np.abs(along) * 1.3, 0.05, 1)
        brow = np.maximum(np.abs(v - arch) - weight, (np.abs(along) - 1.05) * 0.19)
        level = min(face.hair, 0.5 * face.skin)
        thick = cover(brow + 0.005 * hairs, 2 * edge) * np.clip(0.9 + 0.12 * hairs, 0.5, 1) * face.brow_darkness
        self.paint(level, thick)
        # The beard follows the jaw and reaches up to the ears; the moustache hangs between nose and mouth.
        jaw = cover(0.52 - v - 0.75 * np.clip(side - 0.22, 0, 0.6), 0.16) * self.oval
        jaw *= 1 - bump(u, v - MOUTH_V - 0.02, 0.24, 0.09)
        lip_hair = np.maximum(np.abs(v - 0.465 - 0.16 * side**1.3) - 0.045, side - 0.29)
        texture = np.clip(0.85 + 0.16 * noise(self.rng, u + 0.2 * v, v, (110, 50)), 0.3, 1)
        tone = min(
            max(face.hair * 1.1, 0.32 * face.skin + 5), 0.75 * face.skin
        )  # an open mouth is darker than any beard
        beard_level = tone * (0.75 + 0.35 * self.facing)
        self.paint(beard_level, jaw * face.beard * texture)
        self.paint(beard_level, cover(lip_hair, 0.07) * face.moustache * texture)
        stubble = np.maximum(jaw, 0.8 * cover(lip_hair - 0.02, 0.1))
        self.darken(face.stubble, stubble * np.clip(0.75 + 0.3 * noise(self.rng, u, v, (110, 110)), 0, 1.3))

    def _hair_front(self) -> Array:
        """``v`` down to which hair covers the forehead and the sides of the face."""
        face, u, side = self.face, self.u, self.side
        sides = ramp(side, face.face_width - 0.17, face.face_width - 0.01)
        temple = face.hairline + 0.12 * np.clip(side / 0.5, 0, 1) ** 2
        if face.hair_style == "receding":
            line = (
                -1.1
                + 0.2 * ramp(side, 0.3, 0.45)
                + (0.9 + face.hair_length) * ramp(side, face.face_width - 0.2, face.face_width)
            )
        elif face.hair_style == "fringe":
            line = -0.37 + 0.06 * side + (face.hair_length + 0.4) * ramp(side, 0.5, face.face_width - 0.04)
        elif face.hair_style in ("bob", "long"):
            away = np.abs(u - face.parting)
            line = face.hairline - 0.1 + 1.15 * away**1.6 + 2.5 * ramp(side, face.face_width - 0.12, face.face_width)
        elif face.hair_style == "bun":
            line = face.hairline - 0.08 + 0.5 * (side / face.face_width) ** 2.5 + (-0.25 - face.hairline) * sides
        else:
            swoop = 0.1 * np.clip((face.parting - u) * (1.0 if face.parting > 0 else -1.0), -0.3, 0.8)
            line = temple - 0.05 + swoop * (face.hair_style == "short") + (face.hair_length - face.hairline) * sides
        ragged = {"bun": 0.006, "fringe": 0.016, "buzz": 0.01}.get(face.hair_style, 0.02)
        front: Array = line + ragged * self.strands
        return front

    def _draw_front_hair(self) -> None:
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        outer = self.hair_edge
        if face.hair_style in _COVERING:
            width = face.face_width + 0.02 + 0.7 * face.hair_volume + 0.04 * np.clip(v, 0, 1)
            outer = np.minimum(outer, np.maximum(side - width + 0.01 * self.strands, -v - 0.1))
            outer = np.maximum(outer, v - face.hair_length + 0.05 * self.strands)
        if face.hair_style == "receding":
            outer = np.maximum(outer, 0.8 * (0.56 - side - 0.1 * self.strands))
        front = v - self._hair_front()
        softness = 3 * edge if face.hair_style in ("buzz", "receding") else 1.6 * edge
        covered = cover(np.maximum(front, outer), softness)
        if face.hair_style == "buzz":
            covered = covered * np.clip(0.72 + 0.15 * self.strands, 0, 1)
        self.darken(0.3, self.oval * np.exp(-np.clip(front, 0, 1) / 0.05) * (outer < 0.02))  # its shadow on the skin
        self.paint(self.hair_level, covered)
        if face.hair_style in ("bob", "long", "short"):
            line = np.abs(u - face.parting) - 0.006
            self.darken(0.35, cover(line, 2 * edge) * covered * ramp(-v, -face.hairline - 0.05, -face.hairline + 0.25))

    def _draw_glasses(self) -> None:
        face, u, v, side, edge = self.face, self.u, self.v, self.side, self.edge
        lens = ellipse(side - face.eye_space, v - EYE_V - 0.025, 0.225, 0.15 + 0.05 * face.lens)
        box = np.maximum(np.abs(side - face.eye_space) - 0.225, np.abs(v - EYE_V - 0.025) - 0.135)
        lens = face.lens * lens + (1 - face.lens) * (0.5 * box + 0.5 * lens)
        bridge = np.maximum(np.abs(v - EYE_V + 0.02 - 3 * u * u) - 0.016, side - 0.09)
        arm = np.maximum(np.abs(v - EYE_V + 0.03) - 0.018, face.eye_space + 0.21 - side)
        arm = np.maximum(arm, side - face.face_width - 0.02)
        rims = np.minimum(np.minimum(np.abs(lens) - 0.017, bridge), arm)
        self.darken(0.12, cover(np.abs(lens - 0.03) - 0.02, 0.05))
        self.paint((1 - face.glasses) * 140 + 12, cover(rims, edge) * (0.55 + 0.45 * face.glasses))
        streak = np.abs(u + 0.6 * v - 0.27 * np.sign(u) + 0.1) - 0.03
        glare = 55 * cover(streak, 0.05) * cover(lens + 0.03, edge) * ramp(-v, -EYE_V - 0.08, -EYE_V + 0.1)
        self.glare = glare.astype(np.float32)

    def _depth(self) -> Array:
        reach = (self.u / (self.face.face_width + 0.12)) ** 2 + (self.v / 1.12) ** 2
        depth: Array = 0.6 * np.clip(1 - reach, 0, 1) + 0.6 * self._nose()
        return depth.astype(np.float32)
